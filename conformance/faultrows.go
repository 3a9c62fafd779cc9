package conformance

// faultRows ask whether the Harness's faults act. The scenarios that use one ask again. FailOver is seen by where Through leads to. MoveClock is
// not asked: a lock that heeds no clock shows nothing of it.
var faultRows = []row{{
	name:    "the fault StopServer acts",
	promise: "Faults.StopServer makes the backend silent until resume is called.",
	sources: []string{contractOfFaults},
	needs:   []need{stops},
	body:    stopActs,
}, {
	name:    "the fault KillServer acts",
	promise: "Faults.KillServer ends the backend until restart is called.",
	sources: []string{contractOfFaults},
	needs:   []need{kills},
	body:    killActs,
}, {
	name:    "the fault WipeServer acts",
	promise: "Faults.WipeServer ends the backend, and after restart no hold from before is known.",
	sources: []string{contractOfFaults},
	needs:   []need{wipes},
	body:    wipeActs,
}, {
	name:    "the fault FailOver acts",
	promise: "Faults.FailOver acts: a server goes down, or one that was down comes back.",
	sources: []string{contractOfFaults},
	needs:   []need{failsOver, links},
	body:    failOverActs,
}, {
	name:    "the fault Revoke acts",
	promise: "Faults.Revoke ends the hold of a name: the lock is free at once.",
	sources: []string{contractOfFaults},
	needs:   []need{revokes},
	body:    revokeActs,
}, {
	name:    "the fault Through acts",
	promise: "The suite gives Faults.Through a function, via, that takes the address of a server, and returns that of a proxy. The Locker that Through returns connects only to the proxies.",
	sources: []string{contractOfFaults},
	needs:   []need{links},
	body:    throughActs,
}, {
	name:    "the fault Process acts",
	promise: "The process of Faults.Process is the holder: nothing happens in it while it is stopped, or after it is killed.",
	sources: []string{contractOfFaults},
	needs:   []need{processes},
	body:    processActs,
}}

func stopActs(e *env) { e.staysSilent("StopServer", e.h.Faults.StopServer) }

func killActs(e *env) { e.staysSilent("KillServer", e.h.Faults.KillServer) }

// staysSilent ends the scenario unless the backend is silent until the fault is undone, and answers then.
func (e *env) staysSilent(field string, fault func(TB) (undo func())) {
	s, undo, err := e.hush(field, fault)
	e.certainly(err)
	e.relies(s.idle(settle))
	undo()
	b := e.party("B", e.name(), e.long)
	b.afterOutage("the servers answer again")
	_ = b.unlock()
}

func wipeActs(e *env) {
	k := e.earlierHold()
	e.staysSilent("WipeServer", e.h.Faults.WipeServer)
	e.certainly(k.gone())
}

func failOverActs(e *env) {
	b := e.party("B", e.name(), e.long)
	e.failOver()()
	b.afterOutage("another server has taken over")
	_ = b.unlock()
}

func revokeActs(e *env) {
	refused, err := e.revocation()
	e.certainly(err)
	if refused != nil {
		e.doubtf("Faults.Revoke was told to end a hold, whose Extend then fails, and for %v another did not get the lock: %v", e.prompt, refused)
	}
}

func throughActs(e *env) { e.certainly(e.passes()) }

func processActs(e *env) {
	a := e.process("A", e.name(), e.long)
	a.take()
	a.stop()
	a.asleep(settle)
	a.resume()
	if !a.answered(a.ask(), e.patience) {
		e.doubtf("%v after Faults.Process's process was continued it has not answered", e.patience)
	}
	a.kill()
}
