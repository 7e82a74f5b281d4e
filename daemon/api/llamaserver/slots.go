package llamaserver

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// A request's "id_slot" has no effect on where it runs, but names its conversation for POST /slots/{id}, with which
// clients of llama-server save, restore and erase it.

const (
	maxSlots      = 1024    // of all owners
	maxSlotTokens = 8 << 20 // of all slots: 32 MiB
)

// slots are the conversations of slots: of each, the newest.
type slots struct {
	mu     sync.Mutex
	list   []*slot // oldest first
	tokens int
}

type slot struct {
	owner   uint32
	id      int
	request string  // the id of the request
	tokens  []int32 // of its prompt and answer
}

// put replaces the conversation of s's slot.
func (k *slots) put(s *slot) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.drop(func(o *slot) bool { return o.owner == s.owner && o.id == s.id })
	k.list = append(k.list, s)
	k.tokens += len(s.tokens)
	for len(k.list) > maxSlots || k.tokens > maxSlotTokens {
		oldest := k.list[0]
		k.drop(func(o *slot) bool { return o == oldest })
	}
}

// drop removes slots. Caller holds mu.
func (k *slots) drop(which func(*slot) bool) {
	k.list = slices.DeleteFunc(k.list, func(o *slot) bool {
		if which(o) {
			k.tokens -= len(o.tokens)
			return true
		}
		return false
	})
}

// get returns the conversation of owner's slot, nil if it has none.
func (k *slots) get(owner uint32, id int) *slot {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.list {
		if s.owner == owner && s.id == id {
			return s
		}
	}
	return nil
}

// remember keeps the conversation of an answer that names a slot.
func (c *completion) remember(r *http.Request, a *answer) {
	if c.Slot == nil || *c.Slot < 0 || c.s.SlotSavePath == "" || len(c.answers) != 1 {
		return
	}
	tokens := a.Request.PromptTokens
	if tokens == nil {
		p, err := c.s.Render(r.Context(), a.Request)
		if err != nil {
			return
		}
		tokens = p.Tokens
	}
	said := a.Tokens()
	if n := len(said); n > 0 && (a.EOS.Reason != wire.Stop || a.EOS.StopText != "") {
		said = said[:n-1] // no step has read the last token: it has no cells
	}
	c.slots.put(&slot{owner: c.s.Owner(r.Context()), id: *c.Slot, request: a.Request.ID,
		tokens: slices.Concat(tokens, said)})
}

var slotTable = api.Of(api.Taken, "filename")

// slotAnswer is the answer of POST /slots/{id}; its fields depend on the action.
type slotAnswer struct {
	ID       int                `json:"id_slot"`
	File     string             `json:"filename,omitempty"`
	Saved    *int               `json:"n_saved,omitempty"` // tokens
	Written  int                `json:"n_written,omitempty"`
	Restored *int               `json:"n_restored,omitempty"` // tokens
	Read     int                `json:"n_read,omitempty"`
	Erased   *int               `json:"n_erased,omitempty"` // tokens
	Timings  map[string]float64 `json:"timings,omitempty"`
}

// serveSlotAction answers POST /slots/{id}?action=save, restore or erase.
func (k *slots) serveSlotAction(s *api.Server, w http.ResponseWriter, r *http.Request) {
	if s.SlotSavePath == "" {
		refuse("start uma-serve with --slot-save-path")(s, w, r)
		return
	}
	out := s.NewWriter(w)
	facts, err := factsOf(s, r)
	if err != nil {
		fail(out, err)
		return
	}
	id, err := strconv.Atoi(r.PathValue("id"))
	if err != nil || id < 0 || id >= facts.Parallel {
		fail(out, api.Refusef("slot %.40q is unknown; there are slots 0…%d", r.PathValue("id"), facts.Parallel-1))
		return
	}
	done, begun := &slotAnswer{ID: id}, s.Now()
	took := func() float64 { return wire.Ms(max(s.Now().Sub(begun), 0)) }
	switch action := r.URL.Query().Get("action"); action {
	case "save":
		err = k.save(s, r, done)
		done.Timings = map[string]float64{"save_ms": took()}
	case "restore":
		err = k.restore(s, r, done)
		done.Timings = map[string]float64{"restore_ms": took()}
	case "erase":
		err = k.erase(s, r, done)
	default:
		err = api.Refusef(`the query's "action" is %.40q; it must be save, restore or erase`, action)
	}
	if err != nil {
		fail(out, err)
		return
	}
	out.JSON(http.StatusOK, done)
}

// slotName returns the file name in a body.
func slotName(r *http.Request) (string, error) {
	var in struct {
		Name string `json:"filename"`
	}
	if _, err := readTable(r, slotTable, &in, false); err != nil {
		return "", err
	}
	return in.Name, checkFileName(in.Name)
}

// save writes the tokens of a slot to a file, and has the cache copy their cells.
func (k *slots) save(s *api.Server, r *http.Request, done *slotAnswer) (err error) {
	if done.File, err = slotName(r); err != nil {
		return err
	}
	owner := s.Owner(r.Context())
	c := k.get(owner, done.ID)
	if c == nil {
		return api.Refusef(`slot %d is empty: no completion with "id_slot":%d has ended since the start`, done.ID,
			done.ID)
	}
	n := len(c.tokens)
	done.Saved = &n
	f := &slotFile{Version: slotFileVersion, Model: s.Model(), Vocab: s.Facts().Model.VocabSize, Tokens: c.tokens}
	if done.Written, err = writeSlotFile(s.SlotSavePath, owner, done.File, f); err != nil {
		return asFailure(err)
	}
	if _, err := k.cached(s, r, c, wire.KVSave); err != nil { // --cache-ram 0: the cells will be computed again
		s.Log.Debug("the cells of a saved slot are not copied", "slot", done.ID, "reason", err)
	}
	return nil
}

// restore computes or fetches the cells of the tokens in a file, and gives the slot this conversation.
func (k *slots) restore(s *api.Server, r *http.Request, done *slotAnswer) (err error) {
	if done.File, err = slotName(r); err != nil {
		return err
	}
	owner := s.Owner(r.Context())
	f, n, err := readSlotFile(s.SlotSavePath, owner, done.File, s.Model(), s.Facts().Model.VocabSize)
	if err != nil {
		return asFailure(err)
	}
	req := wire.DefaultRequest()
	req.ID, req.PromptTokens, req.FillOnly, req.NoProgress = api.NewID("slot-"), f.Tokens, true, true
	stream, err := s.Start(r.Context(), &req)
	if err != nil {
		return err
	}
	defer stream.Close()
	for ev := stream.Next(); ev != nil; ev = stream.Next() {
		switch ev.Kind {
		case wire.EventError:
			e := api.Error(ev.Error)
			return &e
		case wire.EventEOS:
			if e := api.Cancelled(&ev.EOS); e != nil {
				return e
			}
		}
	}
	tokens := len(f.Tokens)
	done.Restored, done.Read = &tokens, n
	k.put(&slot{owner: owner, id: done.ID, request: req.ID, tokens: f.Tokens})
	return nil
}

// erase drops the cached cells that a slot's conversation has left, and forgets it.
func (k *slots) erase(s *api.Server, r *http.Request, done *slotAnswer) (err error) {
	n := 0
	done.Erased = &n
	c := k.get(s.Owner(r.Context()), done.ID)
	if c == nil {
		return nil
	}
	k.mu.Lock()
	k.drop(func(o *slot) bool { return o == c })
	k.mu.Unlock()
	n, err = k.cached(s, r, c, wire.KVDrop)
	return err
}

// cached carries out an operation on the prefix that a slot's request has left in the cache, and returns its tokens: 0
// if it is no longer there, or a later request has continued it.
func (k *slots) cached(s *api.Server, r *http.Request, c *slot, op wire.KVOp) (tokens int, err error) {
	raw, err := s.Why(r.Context(), wire.WhyQuestion{Request: c.request})
	if err != nil {
		return 0, nil // it is forgotten
	}
	var why reports.WhyReport
	if err := json.Unmarshal(raw, &why); err != nil || len(why.Requests) == 0 {
		return 0, err
	}
	if raw, err = s.KV(r.Context(), wire.KVQuestion{}); err != nil {
		return 0, err
	}
	var report reports.KVReport
	if err := json.Unmarshal(raw, &report); err != nil {
		return 0, err
	}
	for _, e := range report.Entries {
		if e.Kind != "prefix" || e.Number != why.Requests[0].Number {
			continue
		}
		_, err := s.KV(r.Context(), wire.KVQuestion{Op: op, Target: e.Name})
		return e.Tokens, err
	}
	return 0, nil
}

// asFailure returns an error of the file system as the server's.
func asFailure(err error) error {
	if e, ok := err.(*api.Error); ok {
		return e
	}
	return &api.Error{Code: wire.InternalFailure, Message: "--slot-save-path: " + err.Error()}
}

// busySlot is one of llama-server's slots. It shows only whether it is busy: other users may have the request.
type busySlot struct {
	ID          int  `json:"id"`
	Context     int  `json:"n_ctx"`
	Speculative bool `json:"speculative"`
	Processing  bool `json:"is_processing"`
}

// serveSlots answers GET /slots: one slot for each request that can run (--parallel), the first ones busy.
func serveSlots(s *api.Server, w http.ResponseWriter, r *http.Request) {
	if s.NoSlots {
		refuse("it is off (--no-slots)")(s, w, r)
		return
	}
	out, facts := s.NewWriter(w), s.Facts()
	if facts == nil {
		fail(out, loading())
		return
	}
	busy := s.Info().Live.Sequences
	if r.URL.Query().Has("fail_on_no_slot") && busy >= facts.Parallel {
		fail(out, &api.Error{Code: wire.SessionLimit, Message: "no slot available"})
		return
	}
	list := make([]busySlot, facts.Parallel)
	for i := range list {
		list[i] = busySlot{ID: i, Context: facts.Context, Processing: i < busy}
	}
	out.JSON(http.StatusOK, list)
}
