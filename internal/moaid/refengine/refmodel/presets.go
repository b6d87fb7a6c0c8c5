package refmodel

// presets are sized so that a prompt of 2,000 tokens takes about a second on one
// core. Layers alternate full and sliding attention, so that there are two KV groups.
var presets = []Model{
	{
		Name:    "moai/reciting",
		Weights: Reciting,
		Config: Config{
			Layers: 4, Hidden: 192, Heads: 4, KVHeads: 2, HeadDim: 32, FFN: 192,
			Windows: []int{0, 128, 0, 128},
			// Lags of sliding layers are less than their window, those of full layers more.
			Lags:  []int{331, 53, 401, 102},
			Vocab: 258, RopeBase: 100, MaxPosition: 8192,
		},
	},
	{
		Name:    "moai/seeded",
		Weights: Seeded,
		Config: Config{
			Layers: 4, Hidden: 192, Heads: 4, KVHeads: 2, HeadDim: 32, FFN: 192,
			Windows: []int{0, 128, 0, 128},
			Lags:    []int{},
			Vocab:   258, RopeBase: 10000, MaxPosition: 8192,
		},
	},
	{
		Name:    "moai/seeded-wide",
		Weights: Seeded,
		Config: Config{
			Layers: 4, Hidden: 192, Heads: 4, KVHeads: 2, HeadDim: 64, FFN: 192,
			Windows: []int{0, 128, 0, 128},
			Lags:    []int{},
			Vocab:   258, RopeBase: 10000, MaxPosition: 8192,
		},
	},
}
