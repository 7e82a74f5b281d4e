package fabric_test

import (
	"context"
	"fmt"
	"time"

	"github.com/uma-serve/uma-serve/meridian/fabric"
	"github.com/uma-serve/uma-serve/meridian/mrdn"
)

// The way of a span of KV cells from one machine to another.
func Example() {
	f, err := fabric.Open("memory") // or "valkeys://user:password@cache.example:6380"
	if err != nil {
		fmt.Println(err)
		return
	}
	g := fabric.NewGuard(f, fabric.GuardConfig{Timeout: 2 * time.Second})
	defer g.Close()
	ctx := context.Background()

	// Both machines know what they have or want.
	tokens := []int32{1, 4093, 338, 29871}
	span := mrdn.Prologue{
		Model: [32]byte{0xc0, 0xff, 0xee}, Tokens: mrdn.HashTokens(tokens), First: 0, End: int32(len(tokens)),
		EngineBuild: "0c1e57098", TypeK: "f16", TypeV: "f16", Namespace: "uid:1000",
	}

	// The producer: room for the frame, the engine's snapshot behind it, sealed in place.
	kv := []byte("what Engine.Snapshot wrote")
	p := span
	p.KVBytes = int64(len(kv))
	frame, err := mrdn.Begin(nil, &p)
	if err != nil {
		fmt.Println(err)
		return
	}
	frame = append(frame, kv...)
	if err := mrdn.Seal(frame, mrdn.ThinkComplete); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("push:", g.Push(ctx, span.Key(), frame))

	// The consumer: an error is a miss, whatever it was; and only what matches is restored.
	frame, err = g.Pull(ctx, span.Key(), nil)
	if err != nil {
		fmt.Println("miss:", err)
		return
	}
	got, tier, kv, err := mrdn.Open(frame, 1<<30)
	fmt.Println("open:", tier, err)
	fmt.Println("matches:", got.Matches(&span))
	fmt.Printf("restore: %s\n", kv)

	// Another user's prompt of the same tokens is not found.
	span.Namespace = "uid:1001"
	_, err = g.Pull(ctx, span.Key(), nil)
	fmt.Println("miss:", err)
	fmt.Println(got.Matches(&span))
	// Output:
	// push: <nil>
	// open: think_complete <nil>
	// matches: <nil>
	// restore: what Engine.Snapshot wrote
	// miss: memory: pull: not found
	// mrdn: made for something else: namespace is "uid:1000", want "uid:1001"
}
