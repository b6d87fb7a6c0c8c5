package transfer

import "github.com/moai-dev/terraform-provider-moai/internal/moaid/kvcache"

// content is a byte of the model's state, wherever it lies.
func content(id int, at int64) byte { return byte(id*31 + int(at)*13 + int(at>>8)*5) }

// simAt is what of the model a payload byte of one of n ranks is.
func simAt(rank, n int, off int64) int64 {
	part := int64(simSplit / n)
	if off < part {
		return int64(rank)*part + off
	}
	return simSplit + off - part
}

func simBytes(ranks int) int64 { return int64(simSplit/ranks + simSame) }

// simOwn: what all ranks have alike is the first one's.
func simOwn(ranks int) []Set {
	out := make([]Set, ranks)
	for i := range out {
		out[i] = Set{{Offset: 0, Length: int64(simSplit / ranks)}}
	}
	out[0] = Set{{Offset: 0, Length: simBytes(ranks)}}
	return out
}

func simNeed(ranks int) func(tokens, from int) ([]kvcache.Range, error) {
	part := int64(simSplit / ranks)
	return func(tokens, from int) ([]kvcache.Range, error) {
		if from >= tokens {
			return nil, nil
		}
		skip := int64(from/10) * part / 8
		return []kvcache.Range{{Offset: skip, Length: part - skip}, {Offset: part, Length: simSame}}, nil
	}
}

// simView is how an engine of some ranks sees the bytes of one of others.
func simView(sources, ranks int) View {
	return View{Ranks: ranks, Bytes: simBytes(ranks), Available: func(stored []Set) []Set {
		from, to := int64(simSplit/sources), int64(simSplit/ranks)
		out := make([]Set, ranks)
		for src, set := range stored {
			split, same := set.And(Set{{Offset: 0, Length: from}}), set.And(Set{{Offset: from, Length: simSame}})
			for dst := range out {
				for _, r := range split {
					lo, hi := max(r.Offset+int64(src)*from, int64(dst)*to), min(end(r)+int64(src)*from, int64(dst+1)*to)
					out[dst] = out[dst].Add(kvcache.Range{Offset: lo - int64(dst)*to, Length: hi - lo})
				}
				for _, r := range same {
					out[dst] = out[dst].Add(kvcache.Range{Offset: r.Offset - from + to, Length: r.Length})
				}
			}
		}
		return out
	}}
}
