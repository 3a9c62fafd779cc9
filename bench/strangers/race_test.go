//go:build race

package strangers

const raceDetector = true
