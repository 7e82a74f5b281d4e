package runtime

// Submitter is an optional interface of an Engine that can compute beside the host (Capabilities.Beside): Submit and
// Wait are the two halves of Decode. Between them only Abort, Vocab and the immutable facts may be used, and the batch
// and the rows of the Decode before are the engine's.
type Submitter interface {
	// Beside reports whether Submit would return before the filled batch is computed. Use Decode where it would not.
	Beside() bool
	// Submit begins to compute the filled batch. After an error, one of Decode's, nothing runs and Wait is not called.
	Submit() error
	// Wait returns when the batch is computed, as Decode does. It follows each Submit that succeeded.
	Wait() error
}
