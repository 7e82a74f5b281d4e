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
		if err := r.run(expired, run); err != nil {
			if r.ctx.Err() == nil {
				r.Log.Error("a batch stopped; it goes on at the next start", "batch", id, "error", err)
			}
			return
		}
	})
}

var errExpired = errors.New("the batch has expired")

// run answers what is left of a batch, and ends it.
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
	run.b.Counts = counts
	run.mu.Unlock()
	out, err := os.OpenFile(r.path(id, "results"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	var mu sync.Mutex
	var failed error
	put := func(res *Result) {
		text, err := json.Marshal(res)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			_, err = out.Write(append(text, '\n')) // a line that is cut is no result: its request runs again
		}
		if failed = errors.Join(failed, err); failed != nil {
			return
		}
		run.mu.Lock()
		outcome := count(&run.b.Counts, res)
		run.mu.Unlock()
		r.mu.Lock()
		r.counts[outcome]++
		r.mu.Unlock()
	}
	var group sync.WaitGroup
	err = lines(r.path(id, "lines"), func(text []byte) bool {
		var q line
		if json.Unmarshal(text, &q) != nil || done[q.ID] { // it was checked when it came
			return true
		}
		select {
		case r.slots <- struct{}{}:
		case <-ctx.Done():
			if r.ctx.Err() == nil {
				put(&Result{ID: q.ID, Outcome: outcomeOf(ctx)})
			}
			return r.ctx.Err() == nil
		}
		if failing(&mu, &failed) {
			<-r.slots
			return false
		}
		group.Go(func() {
			defer func() { <-r.slots }()
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
			break // what is left is no whole line
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
	wait := firstRetry
	for {
		resp, err := r.Ask(ctx, owner, path, header, q.Body)
		if err == nil {
			res, again := read(q.ID, resp)
			switch {
			case again:
				wait = max(wait, seconds(resp.Header))
			case ctx.Err() == nil || res.Status/100 == 2:
				return res
			}
		} else if res := refusal(q.ID, anthropic, err); res != nil {
			return res
		} else if ctx.Err() == nil {
			r.Log.Debug("a request of a batch is tried again", "custom_id", q.ID, "error", err)
		}
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
	of := map[string]any{"error": map[string]any{"type": kind, "message": refused.Message}}
	if anthropic {
		of["type"] = "error"
	}
	body, _ := json.Marshal(of)
	return &Result{ID: id, Status: status, Body: body}
}

// read reads an answer; again: the request is to be tried again.
func read(id string, resp *http.Response) (res *Result, again bool) {
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusServiceUnavailable,
		resp.StatusCode == http.StatusBadGateway, resp.StatusCode == 529, err != nil:
		return nil, true
	case len(body) > maxAnswer || !json.Valid(body):
		text, _ := json.Marshal(map[string]any{"error": map[string]any{"type": "server_error",
			"message": fmt.Sprintf("the answer is no JSON, or has more than %d bytes", maxAnswer)}})
		return &Result{ID: id, Status: http.StatusInternalServerError, Body: text}, false
	}
	return &Result{ID: id, Status: resp.StatusCode, Body: body}, false
}

// end gives a batch its last state. Results of OpenAI's become files.
func (r *Runner) end(ctx context.Context, run *running) error {
	run.mu.Lock()
	b := run.b
	run.mu.Unlock()
	if !b.Anthropic {
		for _, f := range []struct {
			name string
			good bool
			any  bool
			id   *string
		}{{b.ID + "_output.jsonl", true, b.Counts.Succeeded > 0, &b.Output},
			{b.ID + "_error.jsonl", false, b.Counts.Done() > b.Counts.Succeeded, &b.Errors}} {
			if !f.any || *f.id != "" {
				continue
			}
			pr, pw := io.Pipe()
			go func() { pw.CloseWithError(r.writeResults(pw, b.ID, f.good)) }()
			id, err := r.Keep(b.Owner, f.name, pr)
			pr.Close()
			if err != nil {
				return fmt.Errorf("keep the results: %w", err)
			}
			*f.id = id
		}
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	status := Completed
	switch {
	case errors.Is(context.Cause(ctx), errExpired) && b.Counts.Expired > 0:
		status = Expired
	case run.b.Status == Canceling:
		status = Canceled
	}
	run.b.Output, run.b.Errors, run.b.Status, run.b.Ended = b.Output, b.Errors, status, r.Now().Unix()
	run.cancel = nil
	if err := r.save(&run.b); err != nil {
		return err
	}
	_ = os.Remove(r.path(b.ID, "lines")) // the next start removes it otherwise
	return nil
}

// writeResults writes the results in OpenAI's form: the good ones, or the others.
func (r *Runner) writeResults(w io.Writer, id string, good bool) error {
	out := bufio.NewWriter(w)
	n := 0
	err := lines(r.path(id, "results"), func(text []byte) bool {
		var res Result
		if json.Unmarshal(text, &res) != nil {
			return true
		}
		if n++; (res.Status/100 == 2) != good {
			return true
		}
		line, err := json.Marshal(openAIResult(fmt.Sprintf("batch_req_%s_%d", id, n), &res))
		if err == nil {
			out.Write(line)
			err = out.WriteByte('\n')
		}
		return err == nil
	})
	return errors.Join(err, out.Flush())
}

// openAIResult is a line of an output file.
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
