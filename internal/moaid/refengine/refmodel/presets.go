package refmodel

// presets are sized so that a prompt of 2,000 tokens takes about a second on one
// core. Layers alternate full and sliding attention, so that there are two KV groups;
// those with latent attention have one. With 2 KV heads, 4 ranks have each head twice;
// 8 KV heads can be split over 8.
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
		Name:    "moai/reciting-near",
		Weights: Reciting,
		Config: Config{
			Layers: 4, Hidden: 192, Heads: 4, KVHeads: 2, HeadDim: 32, FFN: 192,
			Windows: []int{0, 128, 0, 128},
			// Short, for many prompts in little time; the second window is nearly used up.
			Lags:  []int{29, 41, 13, 102},
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
	{
		Name:    "moai/reciting-wide",
		Weights: Reciting,
		Config: Config{
			Layers: 4, Hidden: 192, Heads: 8, KVHeads: 8, HeadDim: 16, FFN: 192,
			Windows: []int{0, 128, 0, 128},
			Lags:    []int{331, 53, 401, 102},
			Vocab:   258, RopeBase: 100, MaxPosition: 8192,
		},
	},
	{
		Name:    "moai/seeded-heads",
		Weights: Seeded,
		Config: Config{
			Layers: 4, Hidden: 192, Heads: 8, KVHeads: 8, HeadDim: 16, FFN: 192,
			Windows: []int{0, 128, 0, 128},
			Lags:    []int{},
			Vocab:   258, RopeBase: 10000, MaxPosition: 8192,
		},
	},
	{
		Name:    "moai/latent",
		Weights: Seeded,
		Config: Config{
			Layers: 4, Hidden: 192, Heads: 4, KVHeads: 1, HeadDim: 32, FFN: 192,
			Windows: []int{0, 0, 0, 0},
			Lags:    []int{},
			Vocab:   258, RopeBase: 10000, MaxPosition: 8192,
			Latent: Latent{Dim: 32, Rope: 16},
		},
	},
	{
		Name:    "moai/latent-reciting",
		Weights: Reciting,
		Config: Config{
			Layers: 4, Hidden: 192, Heads: 4, KVHeads: 1, HeadDim: 32, FFN: 192,
			Windows: []int{0, 0, 0, 0},
			Lags:    []int{331, 53, 401, 102},
			Vocab:   258, RopeBase: 100, MaxPosition: 8192,
			Latent: Latent{Dim: 32, Rope: 16},
		},
	},
	{
		Name:    "moai/moe",
		Weights: Seeded,
		Config: Config{
			Layers: 4, Hidden: 192, Heads: 4, KVHeads: 2, HeadDim: 32, FFN: 96,
			Windows: []int{0, 128, 0, 128},
			Lags:    []int{},
			Vocab:   258, RopeBase: 10000, MaxPosition: 8192,
			Experts: Experts{Count: 4, Top: 2},
		},
	},
}
