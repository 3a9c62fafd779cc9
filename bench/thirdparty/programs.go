package thirdparty

// Languages of the libraries that are judged as programs.
const (
	Python     = "Python"
	JavaScript = "JavaScript"
	Shell      = "shell"
)

// Programs are the locks of other languages that were put through the suite, each by an adapter in the folder adapters that speaks the
// protocol of docs/judge-any-language.md. What they run on is unpacked by tools/adapters.sh.
func Programs() []Library {
	return []Library{
		{
			Name: "redis-py", Language: Python, Test: "TestProgram_redispy", Findings: redispyFindings,
			Settings: "Lock with the TTL as its timeout, sleep 0.1 s; extend with replace_ttl",
		},
		{
			Name: "kazoo", Language: Python, Test: "TestProgram_kazoo", Findings: kazooFindings,
			Settings: "the TTL is the session's timeout; a listener tells of a session that is lost",
		},
		{
			Name: "redlock (npm)", Language: JavaScript, Test: "TestProgram_redlock", Findings: npmRedlockFindings,
			Settings: "one node; acquire with retryCount 0, else the defaults; ioredis",
		},
		{
			Name: "etcd3 (npm)", Language: JavaScript, Test: "TestProgram_etcd3", Findings: npmEtcd3Findings,
			Settings: "a lease of the TTL, in whole seconds",
		},
		{
			Name: "flock(1)", Language: Shell, Test: "TestProgram_flock", Findings: flockFindings,
			Settings: "a file for each name, on one machine; no server",
		},
	}
}

var (
	redispyFindings    = []Finding{}
	kazooFindings      = []Finding{}
	npmRedlockFindings = []Finding{}
	npmEtcd3Findings   = []Finding{}
	flockFindings      = []Finding{}
)
