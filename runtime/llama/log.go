package llama

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// logger receives llama.cpp's lines; nil drops them.
var logger atomic.Pointer[slog.Logger]

// The slog levels of llama.cpp's levels, each one lower: a failure is also returned as an error by the failing call,
// and there are hundreds of informational lines.
const (
	ggmlDebug = 1
	ggmlInfo  = 2
	ggmlWarn  = 3
	ggmlError = 4

	levelTrace = slog.LevelDebug - 4
)

func slogLevel(ggml int32) slog.Level {
	switch ggml {
	case ggmlError:
		return slog.LevelWarn
	case ggmlWarn:
		return slog.LevelInfo
	case ggmlInfo:
		return slog.LevelDebug
	}
	return levelTrace
}

// SetLogger sends llama.cpp's log lines to l, attribute engine=llama.cpp. Until it is called, and after
// SetLogger(nil), they are dropped. Lines are delivered by Open, by calls that fail, by Close and by DrainLogs, on the
// goroutine of the caller. Safe from any goroutine.
func SetLogger(l *slog.Logger) {
	lowest := int32(ggmlWarn) // kept even unasked: load errors quote them
	if l != nil {
		l = l.With("engine", "llama.cpp")
		switch ctx := context.Background(); {
		case l.Enabled(ctx, levelTrace):
			lowest = ggmlDebug
		case l.Enabled(ctx, slog.LevelDebug):
			lowest = ggmlInfo
		}
	}
	logger.Store(l)
	setLogLevel(lowest)
}

func emit(level slog.Level, text string) {
	if l := logger.Load(); l != nil {
		l.Log(context.Background(), level, text)
	}
}
