package known

// ReferenceParams are the parameters of llama.ReferenceSampler, with llama.cpp's meaning of every value.
type ReferenceParams struct {
	Temperature      float32 // ≤ 0: the largest logit alone
	TopK             int     // ≤ 0: off
	TopP             float32 // ≥ 1: off
	MinP             float32 // ≤ 0: off
	RepeatPenalty    float32 // 1: off
	FrequencyPenalty float32 // 0: off
	PresencePenalty  float32 // 0: off
	PenaltyLastN     int     // tokens looked back at; 0: penalties off
	Seed             uint32

	TopNSigma        float32 // ≤ 0: off
	TypicalP         float32 // 0 or 1: off
	XTCProbability   float32 // 0: off
	XTCThreshold     float32
	DynatempRange    float32 // 0: off
	DynatempExponent float32
	Mirostat         int // 1 or 2: in place of all but the penalties and the temperature; 0: off
	MirostatTau      float32
	MirostatEta      float32
	VocabSize        int // for Mirostat 1
}
