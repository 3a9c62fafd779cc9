//go:build !race

package thirdparty

const raceDetector = false
