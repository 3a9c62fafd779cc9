module github.com/go-locker/locker/integrations/tusd

go 1.26.0

replace github.com/go-locker/locker => ../../

require (
	github.com/go-locker/locker v0.0.0-00010101000000-000000000000
	github.com/stretchr/testify v1.12.1
	github.com/tus/tusd/v2 v2.9.1
	golang.org/x/exp v0.0.0-20250106191152-7588d65b2ba8
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect
