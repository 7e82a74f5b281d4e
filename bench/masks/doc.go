// Package masks measures grammars on JSON schemas with instances, as MaskBench does: an engine passes a schema when it
// compiles it, accepts every valid instance and rejects every invalid one; every token's mask is timed.
package masks
