package conformance

import "testing"

const (
	tokens     = 30      // of the suite's prompts
	arenaBytes = 1 << 20 // of each worker
)

// Run puts daemons and clients through the whole suite, in every format; clients
// gives each format its factory.
func Run(t *testing.T, h Harness, clients func(testing.TB) Factory) {
	for _, format := range Formats() {
		t.Run(format.Name, func(t *testing.T) {
			t.Parallel()
			RunFormat(t, h, clients(t), format)
		})
	}
}

type testCase struct {
	name string
	run  func(*testing.T, *env)
}

// cases of every format that one rank would do for.
var cases = []testCase{
	{"HelloErrors", helloErrors},
	{"FirstRequestMustBeHello", firstRequest},
	{"UnknownType", unknownType},
	{"MalformedPacketsEndTheSession", malformed},
	{"ArenaIsSealed", sealed},
	{"RepeatedRequestsHaveNoEffect", idempotent},
	{"OtherContentConflicts", conflicts},
	{"UnknownIDs", unknownIDs},
	{"EachKindHasItsRequests", kinds},
	{"StoredInPieces", storedInPieces},
	{"LateOffer", lateOffer},
	{"ClaimedTwice", claimedTwice},
	{"FromToken", fromToken},
	{"ClaimExtended", claimExtended},
	{"Withdraw", withdraw},
	{"ReleaseBeforeReady", releaseEarly},
	{"ReleaseWhileLoading", releaseLoading},
	{"LoadFailed", loadFailed},
	{"OtherPrompt", otherPrompt},
	{"UnknownSource", unknownSource},
	{"SecondSchedulerReplaces", replaced},
	{"NewGenerationEndsTheOld", newGeneration},
	{"SameGenerationComesBack", comesBack},
	{"EndsWhileTheSchedulerIsAway", endsWhileAway},
}

// rankCases are about what ranks do together, and hold for one rank too.
var rankCases = []testCase{
	{"EachRankHasAnArena", arenas},
	{"WholeFlow", wholeFlow},
	{"OnlyOwnRangesAreStored", foreignRanges},
	{"ReadyWhenAllRanksStored", allStored},
	{"OneReportARankAndID", oneReport},
	{"CommitWhenAllRanksLoaded", allLoaded},
	{"OneRanksFailedLoadAborts", oneLoadFailed},
	{"WorkersComeBack", workersComeBack},
}

// replicaCases are of formats with more than one replica.
var replicaCases = []testCase{
	{"ReplicasHaveTheirOwnIDs", replicaIDs},
	{"ReplicasHaveTheirOwnArenas", replicaArenas},
	{"ReplicasHaveTheirOwnGenerations", replicaGenerations},
	{"ReplicasTransferAtOnce", replicasAtOnce},
}

// RunFormat puts daemons and clients through the suite in one format.
func RunFormat(t *testing.T, h Harness, f Factory, format Format) {
	pair := h(t, format.options(false))
	runCases(t, pair, f, format, cases)
	runCases(t, pair, f, format, rankCases)
	if format.Replicas > 1 {
		runCases(t, pair, f, format, replicaCases)
	}
	t.Run("AdoptAfterRestart", func(t *testing.T) {
		adopt(t, newEnv(t, h(t, format.options(false)), f, format))
	})
	t.Run("NoRoomThenRoom", func(t *testing.T) {
		noRoom(t, newEnv(t, h(t, format.options(true)), f, format))
	})
	t.Run("Deadlines", func(t *testing.T) {
		deadlines(t, newEnv(t, h(t, format.options(true)), f, format))
	})
}

func runCases(t *testing.T, pair Pair, f Factory, format Format, all []testCase) {
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) { c.run(t, newEnv(t, pair, f, format)) })
	}
}
