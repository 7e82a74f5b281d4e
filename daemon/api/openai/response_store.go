package openai

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/uma-serve/uma-serve/daemon/api"
)

// Limits of the store. A response counts with the whole conversation before it, which it retains.
const (
	maxStored      = 256      // responses per owner
	maxStoredBytes = 16 << 20 // per owner
	maxAllBytes    = 64 << 20 // all owners; beyond it the owner with the most bytes loses its oldest response
)

// responsesAPI serves the endpoints below /v1/responses.
type responsesAPI struct {
	s     *api.Server
	store responseStore
}

// responseStore keeps responses in memory for previous_response_id. A restart loses them; an owner's oldest go first.
type responseStore struct {
	mu     sync.Mutex
	owners map[uint32]*ownedResponses
	bytes  int
	last   uint64 // number of the newest response
}

type ownedResponses struct {
	byID  map[string]*storedResponse
	items map[string]storedItem // items of these responses, by id
	order []*storedResponse     // oldest first
	bytes int
}

// storedItem is an item of a response's input or output.
type storedItem struct {
	of  *storedResponse
	raw rawJSON
}

type storedResponse struct {
	id      string
	object  rawJSON
	input   []rawJSON // of this response
	history []rawJSON // the whole conversation, its output included
	bytes   int
	number  uint64   // counts up
	itemIDs []string // of its input and output
}

// put stores a finished response.
func (st *responseStore) put(c *responding) {
	s := &storedResponse{id: c.response.ID, object: api.AppendJSON(nil, &c.response), input: c.input,
		history: slices.Clone(c.history)}
	for _, item := range c.response.Output {
		s.history = append(s.history, api.AppendJSON(nil, item))
	}
	own := s.history[len(c.history)-len(c.input):]
	s.bytes = len(s.object)
	for _, raw := range own {
		s.itemIDs = append(s.itemIDs, idOf(raw))
		s.bytes += 2*len(s.itemIDs[len(s.itemIDs)-1]) + 64 // and the entry of the map
	}
	if s.bytes += sizeOf(s.history); s.bytes > maxStoredBytes {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.last++
	s.number = st.last
	if st.owners == nil {
		st.owners = map[uint32]*ownedResponses{}
	}
	o := st.owners[c.owner]
	if o == nil {
		o = &ownedResponses{byID: map[string]*storedResponse{}, items: map[string]storedItem{}}
		st.owners[c.owner] = o
	}
	o.byID[s.id], o.order = s, append(o.order, s)
	for i, raw := range own {
		o.items[s.itemIDs[i]] = storedItem{s, raw}
	}
	o.bytes += s.bytes
	st.bytes += s.bytes
	for len(o.order) > maxStored || o.bytes > maxStoredBytes {
		st.drop(c.owner, o, 0)
	}
	for st.bytes > maxAllBytes {
		var most uint32
		for owner, other := range st.owners {
			if m := st.owners[most]; m == nil || other.bytes > m.bytes || other.bytes == m.bytes &&
				other.order[0].number < m.order[0].number {
				most = owner
			}
		}
		st.drop(most, st.owners[most], 0)
	}
}

// sizeOf returns the bytes of items and of their slices.
func sizeOf(items []rawJSON) (n int) {
	for _, raw := range items {
		n += len(raw) + 24
	}
	return n
}

// drop removes the i-th response of an owner. Caller holds mu.
func (st *responseStore) drop(owner uint32, o *ownedResponses, i int) {
	s := o.order[i]
	o.order = slices.Delete(o.order, i, i+1)
	delete(o.byID, s.id)
	for _, id := range s.itemIDs {
		if o.items[id].of == s {
			delete(o.items, id)
		}
	}
	o.bytes -= s.bytes
	st.bytes -= s.bytes
	if len(o.order) == 0 {
		delete(st.owners, owner)
	}
}

// get returns a response of owner, nil if there is none with this id.
func (st *responseStore) get(owner uint32, id string) *storedResponse {
	st.mu.Lock()
	defer st.mu.Unlock()
	if o := st.owners[owner]; o != nil {
		return o.byID[id]
	}
	return nil
}

// item returns an item of owner's stored responses by its id, nil if there is none.
func (st *responseStore) item(owner uint32, id string) rawJSON {
	st.mu.Lock()
	defer st.mu.Unlock()
	if o := st.owners[owner]; o != nil {
		return o.items[id].raw
	}
	return nil
}

// idOf returns the id of an item, "" if it has none.
func idOf(raw rawJSON) string {
	var it struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(raw, &it) != nil {
		return ""
	}
	return it.ID
}

// remove deletes a response and reports whether it existed.
func (st *responseStore) remove(owner uint32, id string) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	o := st.owners[owner]
	if o == nil {
		return false
	}
	i := slices.IndexFunc(o.order, func(s *storedResponse) bool { return s.id == id })
	if i < 0 {
		return false
	}
	st.drop(owner, o, i)
	return true
}

// stored returns the response that the path names, or answers with HTTP 404.
func (a *responsesAPI) stored(w *api.Writer, r *http.Request) *storedResponse {
	id := r.PathValue("id")
	s := a.store.get(a.s.Owner(r.Context()), id)
	if s == nil {
		NotFound(w, fmt.Sprintf("response %.100q is not stored here; it may have been displaced by newer ones", id))
	}
	return s
}

// serveStored answers GET /v1/responses/{id}.
func (a *responsesAPI) serveStored(w http.ResponseWriter, r *http.Request) {
	out := a.s.NewWriter(w)
	if on, _ := strconv.ParseBool(r.URL.Query().Get("stream")); on {
		Fail(out, api.Refuse("a stored response cannot be streamed; leave \"stream\" out"))
		return
	}
	if s := a.stored(out, r); s != nil {
		out.JSON(http.StatusOK, s.object)
	}
}

// serveDelete answers DELETE /v1/responses/{id}.
func (a *responsesAPI) serveDelete(w http.ResponseWriter, r *http.Request) {
	out := a.s.NewWriter(w)
	if s := a.stored(out, r); s != nil {
		a.store.remove(a.s.Owner(r.Context()), s.id)
		out.JSON(http.StatusOK, struct {
			ID      string `json:"id"`
			Object  string `json:"object"`
			Deleted bool   `json:"deleted"`
		}{s.id, "response", true})
	}
}

// serveItems answers GET /v1/responses/{id}/input_items, newest first unless order is "asc".
func (a *responsesAPI) serveItems(w http.ResponseWriter, r *http.Request) {
	out, q := a.s.NewWriter(w), r.URL.Query()
	limit, err := strconv.Atoi(cmp.Or(q.Get("limit"), "20"))
	order := cmp.Or(q.Get("order"), "desc")
	if err != nil || limit < 1 || limit > 100 || order != "asc" && order != "desc" {
		Fail(out, api.Refuse(`"limit" must be 1…100 and "order" "asc" or "desc"`))
		return
	}
	s := a.stored(out, r)
	if s == nil {
		return
	}
	items := slices.Clone(s.input)
	if order == "desc" {
		slices.Reverse(items)
	}
	ids := make([]string, len(items))
	for i, raw := range items {
		ids[i] = idOf(raw)
	}
	from := slices.Index(ids, q.Get("after")) + 1 // 0 without "after"
	to := min(from+limit, len(items))
	list := struct {
		Object  string    `json:"object"`
		Data    []rawJSON `json:"data"`
		First   *string   `json:"first_id"`
		Last    *string   `json:"last_id"`
		HasMore bool      `json:"has_more"`
	}{Object: "list", Data: items[from:to], HasMore: to < len(items)}
	if from < to {
		list.First, list.Last = &ids[from], &ids[to-1]
	}
	out.JSON(http.StatusOK, list)
}

// serveCancel answers POST /v1/responses/{id}/cancel: it ends a running response with the status "cancelled".
func (a *responsesAPI) serveCancel(w http.ResponseWriter, r *http.Request) {
	out, id := a.s.NewWriter(w), r.PathValue("id")
	if a.s.Cancel(r.Context(), id) {
		out.JSON(http.StatusOK, struct {
			ID     string `json:"id"`
			Object string `json:"object"`
			Status string `json:"status"`
		}{id, "response", "cancelled"})
		return
	}
	if a.stored(out, r) != nil {
		Fail(out, api.Refusef("response %.100q has ended", id))
	}
}
