package batches

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// start runs a batch until it is over or the Runner is closed.
func (r *Runner) start(run *running) {
	ctx, cancel := context.WithCancel(r.ctx)
	run.mu.Lock()
	run.cancel = cancel
	if run.b.Status == Canceling {
		cancel()
	}
	id, left := run.b.ID, time.Duration(run.b.Expires-r.Now().Unix())*time.Second
	run.mu.Unlock()
	r.group.Go(func() {
		defer cancel()
		expired, end := context.WithTimeoutCause(ctx, max(left, 0), errExpired)
		defer end()
		for wait := firstRetry; ; wait = min(2*wait, 10*longestRetry) {
			err := r.run(expired, run)
			if err == nil || r.ctx.Err() != nil {
				return
			}
			r.Log.Error("a batch stopped; it is tried again", "batch", id, "in", wait, "error", err)
			select { // the disk is full, or its owner has too many files
			case <-time.After(wait):
			case <-r.ctx.Done():
				return
			}
		}
	})
}

var errExpired = errors.New("the batch has expired")

// run answers the unanswered lines of a batch, and ends it.
func (r *Runner) run(ctx context.Context, run *running) error {
	run.mu.Lock()
	id, owner, endpoint, anthropic := run.b.ID, run.b.Owner, run.b.Endpoint, run.b.Anthropic
	run.mu.Unlock()
	done, counts, err := r.mend(id)
	if err != nil {
		return err
	}
	run.mu.Lock()
	counts.Total = run.b.Counts.Total
	run.b.Counts, run.b.Bytes = counts, r.size(id, "lines", "results")
	run.mu.Unlock()
	out, err := os.OpenFile(r.path(id, "results"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	var mu sync.Mutex
	var failed error
	put := func(res *Result) {
		text, err := marshal(res)
		mu.Lock()
		defer mu.Unlock()
		if failed != nil {
			return // behind half of a line
		}
		if err == nil {
			_, err = out.Write(text) // a line that is cut is no result: its request runs again
		}
		if failed = err; failed != nil {
			return
		}
		run.mu.Lock()
		outcome := count(&run.b.Counts, res)
		run.b.Bytes += int64(len(text))
		run.mu.Unlock()
		r.mu.Lock()
		r.counts[outcome]++
		r.mu.Unlock()
	}
	var group sync.WaitGroup
	in, err := os.Open(r.path(id, "lines"))
	if err != nil {
		return err
	}
	defer in.Close()
	own := make(chan struct{}, Slots) // requests of this batch, those that wait for another try included
	err = lines(in, func(text []byte) bool {
		var q line
		if json.Unmarshal(text, &q) != nil || done[q.ID] { // it was checked when it came
			return true
		}
		select {
		case own <- struct{}{}:
		case <-ctx.Done():
			if r.ctx.Err() == nil {
				put(&Result{ID: q.ID, Outcome: outcomeOf(ctx)})
			}
			return r.ctx.Err() == nil
		}
		if failing(&mu, &failed) {
			return false
		}
		group.Go(func() {
			defer func() { <-own }()
			if res := r.answer(ctx, owner, endpoint, anthropic, &q); res != nil {
				put(res)
			}
		})
		return true
	})
	group.Wait()
	if err = errors.Join(err, failed, out.Sync()); err != nil || r.ctx.Err() != nil {
		return err
	}
	return r.end(ctx, run)
}

func failing(mu *sync.Mutex, err *error) bool {
	mu.Lock()
	defer mu.Unlock()
	return *err != nil
}

// mend reads the results of an earlier run and cuts off the last line if it is not whole.
func (r *Runner) mend(id string) (done map[string]bool, c Counts, err error) {
	done = map[string]bool{}
	path := r.path(id, "results")
	whole := int64(0)
	in, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return done, c, nil
	}
	if err != nil {
		return nil, c, err
	}
	defer in.Close()
	buf := bufio.NewReaderSize(in, 64<<10)
	for {
		text, err := buf.ReadBytes('\n')
		if err != nil {
			break // the rest is no whole line
		}
		var res Result
		if json.Unmarshal(text, &res) != nil || res.ID == "" {
			break
		}
		whole += int64(len(text))
		if !done[res.ID] {
			done[res.ID] = true
			count(&c, &res)
		}
	}
	return done, c, os.Truncate(path, whole)
}

// count counts a result and returns its outcome.
func count(c *Counts, res *Result) string {
	switch {
	case res.Outcome == string(Canceled):
		c.Canceled++
	case res.Outcome == string(Expired):
		c.Expired++
	case res.Status/100 == 2:
		c.Succeeded++
		return "succeeded"
	default:
		c.Errored++
		return "errored"
	}
	return res.Outcome
}

func outcomeOf(ctx context.Context) string {
	if errors.Is(context.Cause(ctx), errExpired) {
		return string(Expired)
	}
	return string(Canceled)
}

// answer answers a request; nil: the Runner is being closed. One that is refused because the server is busy, loads the
// model, or restarts its process is tried again until the batch expires.
func (r *Runner) answer(ctx context.Context, owner uint32, path string, anthropic bool, q *line) *Result {
	header := http.Header{"Content-Type": {"application/json"}, "X-Uma-Priority": {"background"}}
	if anthropic {
		header.Set("Anthropic-Version", "2023-06-01")
	}
	wait, lost := firstRetry, 0
	for {
		res, again, err := r.try(ctx, owner, path, header, q)
		if err == nil && again == 0 && (ctx.Err() == nil || res.Status/100 == 2) {
			return res
		}
		if err != nil && ctx.Err() == nil {
			if res := refusal(q.ID, anthropic, err); res != nil {
				return res
			}
			r.Log.Debug("a request of a batch is tried again", "custom_id", q.ID, "error", err)
			if errors.Is(err, ErrLost) {
				if lost++; lost == maxLost { // the others have to be answered too
					return failure(q.ID, anthropic, http.StatusInternalServerError, "api_error",
						fmt.Sprintf("%d processes of the model ended while they answered this request", lost))
				}
			}
		}
		wait = max(wait, again)
		select {
		case <-time.After(wait):
			wait = min(2*wait, longestRetry)
		case <-ctx.Done():
			if r.ctx.Err() != nil {
				return nil
			}
			return &Result{ID: q.ID, Outcome: outcomeOf(ctx)}
		}
	}
}

// try asks once, in a slot, which is free for others while a request waits for another try. again is the time that the
// server wants until then, at least; 0: it has answered.
func (r *Runner) try(ctx context.Context, owner uint32, path string, header http.Header, q *line) (res *Result,
	again time.Duration, err error) {
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	defer func() { <-r.slots }()
	resp, err := r.Ask(ctx, owner, path, header, q.Body)
	if err != nil {
		return nil, 0, err
	}
	if res, err = read(q.ID, resp); res == nil && err == nil {
		return nil, max(firstRetry, seconds(resp.Header)), nil
	}
	return res, 0, err
}

// refusal returns the result of a request that was refused for good before a model got it; nil: it was not.
func refusal(id string, anthropic bool, err error) *Result {
	refused, ok := errors.AsType[*api.Error](err)
	if !ok {
		return nil
	}
	status, kind := http.StatusBadRequest, "invalid_request_error"
	switch refused.Code {
	case wire.ModelNotFound:
		status, kind = http.StatusNotFound, "not_found_error"
	case wire.FrameTooLarge:
		status = http.StatusRequestEntityTooLarge
	case wire.BadRequest, wire.NotSupported, wire.ModelTooLarge:
	default:
		return nil
	}
	return failure(id, anthropic, status, kind, refused.Message)
}

// failure returns the result of a request in the form of an API's error.
func failure(id string, anthropic bool, status int, kind, message string) *Result {
	of := map[string]any{"error": map[string]any{"type": kind, "message": message}}
	if anthropic {
		of["type"] = "error"
	}
	body, _ := json.Marshal(of)
	return &Result{ID: id, Status: status, Body: body}
}

// read reads an answer; nil: the request is to be tried again.
func read(id string, resp *http.Response) (res *Result, err error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusServiceUnavailable,
		resp.StatusCode == http.StatusBadGateway, resp.StatusCode == 529:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrLost, err)
	case len(body) > maxAnswer || !json.Valid(body):
		text, _ := json.Marshal(map[string]any{"error": map[string]any{"type": "server_error",
			"message": fmt.Sprintf("the answer is no JSON, or has more than %d bytes", maxAnswer)}})
		return &Result{ID: id, Status: http.StatusInternalServerError, Body: text}, nil
	}
	return &Result{ID: id, Status: resp.StatusCode, Body: body}, nil
}

// end gives a batch its last state. Results of OpenAI's become files.
func (r *Runner) end(ctx context.Context, run *running) error {
	run.mu.Lock()
	b := run.b
	run.mu.Unlock()
	var fault *Fault
	if !b.Anthropic {
		err := r.keep(run, &b)
		var refused *wire.RequestError
		switch {
		case errors.As(err, &refused) && r.Now().Unix() >= b.Expires:
			fault = &Fault{Line: 1, Code: "results_not_kept", Message: "the results cannot be kept: " + refused.Message}
		case err != nil:
			return fmt.Errorf("keep the results: %w", err)
		}
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	state := run.b
	switch {
	case fault != nil:
		state.Status, state.Faults = Failed, []Fault{*fault}
	case errors.Is(context.Cause(ctx), errExpired) && b.Counts.Expired > 0:
		state.Status = Expired
	case run.b.Status == Canceling:
		state.Status = Canceled
	default:
		state.Status = Completed
	}
	state.Ended, state.Bytes = r.Now().Unix(), 0
	if b.Anthropic {
		state.Bytes = r.size(b.ID, "results")
	}
	if err := r.save(&state); err != nil {
		return err
	}
	run.b, run.cancel = state, nil
	r.tidy(&state)
	return nil
}

// tidy removes what a batch that is over does not need.
func (r *Runner) tidy(b *Batch) {
	_ = os.Remove(r.path(b.ID, "lines")) // the next start tries again
	if !b.Anthropic {
		_ = os.Remove(r.path(b.ID, "results")) // they are files
	}
}

func (r *Runner) size(id string, kinds ...string) (n int64) {
	for _, kind := range kinds {
		if st, err := os.Stat(r.path(id, kind)); err == nil {
			n += st.Size()
		}
	}
	return n
}

// keep makes files of the results of a batch, b, each once.
func (r *Runner) keep(run *running, b *Batch) error {
	for _, f := range []struct {
		name string
		good bool
		any  bool
		id   func(*Batch) *string
	}{{b.ID + "_output.jsonl", true, b.Counts.Succeeded > 0, func(b *Batch) *string { return &b.Output }},
		{b.ID + "_error.jsonl", false, b.Counts.Done() > b.Counts.Succeeded,
			func(b *Batch) *string { return &b.Errors }}} {
		if !f.any || *f.id(b) != "" {
			continue
		}
		pr, pw := io.Pipe()
		go func() { pw.CloseWithError(r.writeResults(pw, b.ID, f.good)) }()
		id, err := r.Keep(b.Owner, f.name, pr)
		pr.Close()
		if err != nil {
			return err
		}
		run.mu.Lock()
		*f.id(&run.b) = id
		run.mu.Unlock()
	}
	return nil
}

// writeResults writes the results in OpenAI's form: the good ones, or the others.
func (r *Runner) writeResults(w io.Writer, id string, good bool) error {
	out := bufio.NewWriter(w)
	in, err := os.Open(r.path(id, "results"))
	if err != nil {
		return err
	}
	defer in.Close()
	n := 0
	err = lines(in, func(text []byte) bool {
		var res Result
		if json.Unmarshal(text, &res) != nil {
			return true
		}
		if n++; (res.Status/100 == 2) != good {
			return true
		}
		line, err := marshal(openAIResult(fmt.Sprintf("batch_req_%s_%d", id, n), &res))
		if err == nil {
			_, err = out.Write(line)
		}
		return err == nil
	})
	return errors.Join(err, out.Flush())
}

// openAIResult returns a line of an output file.
func openAIResult(id string, res *Result) map[string]any {
	out := map[string]any{"id": id, "custom_id": res.ID, "response": nil, "error": nil}
	switch res.Outcome {
	case "":
		out["response"] = map[string]any{"status_code": res.Status, "request_id": id, "body": res.Body}
	case string(Canceled):
		out["error"] = map[string]any{"code": "batch_cancelled",
			"message": "the batch was cancelled before this request"}
	default:
		out["error"] = map[string]any{"code": "batch_expired",
			"message": "the batch was not over within its completion window"}
	}
	return out
}
