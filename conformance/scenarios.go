package conformance

import "slices"

// Scenarios returns all scenarios, in the order of the documentation.
func Scenarios() []Scenario {
	var all []Scenario
	for _, topic := range [][]row{
		exclusionRows, tryRows, contextRows, cancelRows, faultRows, waitingRows, wantedRows, expiryRows, extendRows,
		unlockRows, reuseRows, tokenRows, nameRows, sharingRows, lossRows, silenceRows, clientRows, outageRows, replyRows, networkRows, lateRows, processRows,
		readWriteRows, readWriteQueueRows, readWriteHistoryRows, readers(slices.Concat(replyRows, lateRows, networkRows, silenceRows, processRows)...),
		historyRows, counterRows,
	} {
		for _, r := range topic {
			all = append(all, r.scenario())
		}
	}
	return all
}
