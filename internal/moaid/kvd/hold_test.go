package kvd

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"testing"

	"github.com/moai-dev/terraform-provider-moai/internal/moaid/api"
)

// A transfer is over long before the answer is: replicas must share the answers.
func TestAnswersAreSpreadOverReplicas(t *testing.T) {
	_, d, pe, des := withReplicas(t)
	const tokens = 60
	hash := tokenHash(tokens, "a")
	given, finish := make(chan int, 16), []chan struct{}{make(chan struct{}), make(chan struct{})}
	des[0].http.answers(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(headerTransfer)
		rank, err := strconv.Atoi(r.Header.Get(headerDataRank))
		if err != nil {
			t.Error(err)
			return
		}
		des[rank].claim(id, tokens, hash, 0)
		des[rank].verdict(id)
		des[rank].load(id, true)
		given <- rank
		<-finish[rank]
		_, _ = io.WriteString(w, "done")
	})
	begin := func(n int, answered chan<- string) []int {
		count := make([]int, len(des))
		for range n {
			id := newID()
			go func() {
				_, body := get(t.Context(), t, d, "decode", "/x", held(id))
				answered <- body
			}()
			pe.prefill(id, tokens, hash, true)
			count[<-given]++
			d.waitState(id, "committed")
		}
		return count
	}
	const n, more = 6, 3
	answered := make(chan string, n+more)
	if count := begin(n, answered); !slices.Equal(count, []int{n / 2, n / 2}) {
		t.Errorf("requests that overlap, by replica: %v", count)
	}
	// Those of one replica are answered: it gets the next ones.
	close(finish[0])
	eventually(t, "one replica has nothing left", func() bool { return slices.Equal(loadsOf(t, d, "decode"), []int{0, n / 2}) })
	for range more {
		if count := begin(1, answered); count[0] != 1 {
			t.Error("a request went to the replica that has others")
		}
		eventually(t, "the request is answered", func() bool { return slices.Equal(loadsOf(t, d, "decode"), []int{0, n / 2}) })
	}
	close(finish[1])
	for range n + more {
		if body := <-answered; body != "done" {
			t.Errorf("got %q", body)
		}
	}
	eventually(t, "nothing is counted any more", func() bool { return slices.Equal(loadsOf(t, d, "decode"), []int{0, 0}) })
	// One after the other they take turns.
	count := make([]int, len(des))
	for range 4 {
		for i, c := range begin(1, answered) {
			count[i] += c
		}
		<-answered
		eventually(t, "nothing is counted any more", func() bool { return slices.Equal(loadsOf(t, d, "decode"), []int{0, 0}) })
	}
	if !slices.Equal(count, []int{2, 2}) {
		t.Errorf("requests one by one, by replica: %v", count)
	}
}

func loadsOf(t *testing.T, n *node, engine string) (loads []int) {
	t.Helper()
	if err := n.d.own.call(t.Context(), func() { loads = n.d.loads(n.d.engines[engine]) }); err != nil {
		t.Fatal(err)
	}
	return loads
}

// What a replica says of itself counts while it is new, and while all replicas
// said something.
func TestChoiceByWhatReplicasSay(t *testing.T) {
	n := newNode(t, "d", nil)
	n.replicas("decode", "decode", plain(1), 2)
	choose := func(running ...int) int {
		rank := -1
		if err := n.d.own.call(t.Context(), func() {
			e := n.d.engines["decode"]
			e.turn = 0
			for k, r := range e.replicas {
				r.stats = nil
				if k < len(running) {
					r.stats, r.statsAt = &api.EngineStats{Waiting: 1, Running: running[k]}, n.d.own.now()
				}
			}
			rank = n.d.choose(e).rank
		}); err != nil {
			t.Fatal(err)
		}
		return rank
	}
	for _, c := range []struct {
		running []int
		want    int
	}{{nil, 0}, {[]int{3, 1}, 1}, {[]int{1, 3}, 0}, {[]int{3}, 0}, {[]int{1, 1}, 0}} {
		if got := choose(c.running...); got != c.want {
			t.Errorf("running %v: replica %d, want %d", c.running, got, c.want)
		}
	}
}
