package devices

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/runtime"
)

const (
	// askTime is the time limit of drivers that look for their devices.
	askTime = 30 * time.Second
	// MaxReport is the limit on the report about them, in bytes.
	MaxReport = 1 << 20
)

// Ask runs a program that loads the drivers and writes a runtime.Backends to stdout, as JSON.
func Ask(ctx context.Context, env []string, program string, args ...string) (b runtime.Backends, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = env
	cmd.WaitDelay = time.Second
	var text, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &limited{&text, MaxReport + 1}, &limited{&errs, MaxReport}
	if err := cmd.Start(); err != nil {
		return b, fmt.Errorf("start a process that looks at devices: %w", err)
	}
	err = cmd.Wait()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // a process that a driver has started keeps stdout open; the report is complete
	}
	switch {
	case text.Len() > MaxReport:
		err = fmt.Errorf("its report has more than %d bytes", MaxReport)
	case err == nil:
		err = json.Unmarshal(text.Bytes(), &b)
	}
	switch {
	case err == nil:
		return b, nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("a driver did not answer within %v", askTime)
	}
	lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
	return runtime.Backends{}, fmt.Errorf("look at devices: %w: %.300s", err, lines[len(lines)-1])
}

// limited keeps the first bytes that are written, up to a limit, and drops the others.
type limited struct {
	w    io.Writer
	left int
}

func (l *limited) Write(b []byte) (int, error) {
	n := min(len(b), l.left)
	l.left -= n
	if _, err := l.w.Write(b[:n]); err != nil {
		return 0, err
	}
	return len(b), nil
}
