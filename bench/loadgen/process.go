package loadgen

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// Serve is the client process: a Job as JSON from in, then one dot to out for each request that has ended, a line feed,
// and the Result as JSON.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	// The engine computes on every core: a second thread that wakes for a token takes one from it.
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(800)
	var j Job
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	var mu sync.Mutex
	dots, last := 0, time.Now()
	res, err := Run(ctx, &j, func() {
		mu.Lock()
		defer mu.Unlock()
		dots++
		if time.Since(last) > 200*time.Millisecond { // a write wakes the reader: not for every request
			out.Write(bytes.Repeat([]byte("."), dots))
			dots, last = 0, time.Now()
		}
	})
	if err != nil {
		return err
	}
	if _, err := out.Write(append(bytes.Repeat([]byte("."), dots), '\n')); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(res)
}

// Spawn runs a job in a child process: bin with args, which must call Serve. ended is called with the number of
// requests that have ended so far.
func Spawn(ctx context.Context, j *Job, ended func(n int), bin string, args ...string) (*Result, error) {
	if err := j.check(); err != nil {
		return nil, err
	}
	job, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Stdin = bytes.NewReader(job)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	out := bufio.NewReaderSize(pipe, 1<<20)
	var res Result
	readErr := func() error {
		for n := 0; ; {
			b, err := out.ReadByte()
			if err != nil {
				return err
			}
			if b == '\n' {
				return json.NewDecoder(out).Decode(&res)
			}
			if n++; ended != nil {
				ended(n)
			}
		}
	}()
	io.Copy(io.Discard, out)
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("the client process: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	if readErr != nil {
		return nil, fmt.Errorf("read the client's result: %w", readErr)
	}
	return &res, nil
}
