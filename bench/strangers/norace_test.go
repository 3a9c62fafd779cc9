//go:build !race

package strangers

const raceDetector = false
