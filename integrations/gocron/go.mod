module github.com/go-locker/locker/integrations/gocron

go 1.26.0

replace github.com/go-locker/locker => ../..

require (
	github.com/go-co-op/gocron/v2 v2.21.2
	github.com/go-locker/locker v0.0.0-00010101000000-000000000000
	github.com/google/uuid v1.6.0
	github.com/jonboulle/clockwork v0.5.0
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/robfig/cron/v3 v3.0.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
