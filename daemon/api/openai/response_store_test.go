package openai

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/api"
	"github.com/uma-serve/uma-serve/daemon/api/apitest"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// filed puts a response of about size bytes into st.
func filed(st *responseStore, owner uint32, id string, size int) {
	text := rawJSON(`{"id":"i` + id + `","text":"` + strings.Repeat("x", size) + `"}`)
	st.put(&responding{owner: owner, response: responseObject{ID: id, Metadata: json.RawMessage("{}"),
		Tools: json.RawMessage("[]"), ToolChoice: json.RawMessage(`"auto"`)}, input: []rawJSON{text},
		history: []rawJSON{text}})
}

// held checks the sums of st and lists the ids of an owner, oldest first.
func held(t *testing.T, st *responseStore, owner uint32) (ids []string) {
	t.Helper()
	all := 0
	for _, o := range st.owners {
		sum := 0
		for _, s := range o.order {
			sum += s.bytes
			if o.byID[s.id] != s {
				t.Errorf("%s is in the order, not by id", s.id)
			}
		}
		for id, item := range o.items {
			if o.byID[item.of.id] != item.of || !slices.Contains(item.of.itemIDs, id) {
				t.Errorf("item %s is of a response that is gone", id)
			}
		}
		if sum != o.bytes || len(o.byID) != len(o.order) || sum > maxStoredBytes || len(o.order) > maxStored {
			t.Errorf("an owner has %d bytes in %d responses, %d by id, and is told to have %d", sum, len(o.order),
				len(o.byID), o.bytes)
		}
		all += sum
	}
	if all != st.bytes || all > maxAllBytes {
		t.Errorf("%d bytes, told %d", all, st.bytes)
	}
	if o := st.owners[owner]; o != nil {
		for _, s := range o.order {
			ids = append(ids, s.id)
		}
	}
	return ids
}

// TestStoreIsBounded: by count and bytes of an owner, whose oldest go, and by the bytes of all.
func TestStoreIsBounded(t *testing.T) {
	var st responseStore
	for i := range maxStored + 3 {
		filed(&st, 1, fmt.Sprint(i), 10)
	}
	if ids := held(t, &st, 1); len(ids) != maxStored || ids[0] != "3" {
		t.Errorf("%d are held, the oldest %s", len(ids), ids[0])
	}
	filed(&st, 1, "large", maxStoredBytes/2)
	filed(&st, 1, "larger", maxStoredBytes/2+1000)
	if ids := held(t, &st, 1); !slices.Equal(ids, []string{"larger"}) {
		t.Errorf("%q", ids)
	}
	filed(&st, 1, "too large", maxStoredBytes)
	if st.item(1, "ilarger") == nil || st.item(2, "ilarger") != nil || st.item(1, "ilarge") != nil ||
		st.item(1, "i0") != nil {
		t.Error("an item is not found, or found where it is not")
	}
	if ids := held(t, &st, 1); !slices.Equal(ids, []string{"larger"}) {
		t.Errorf("%q", ids)
	}
	for owner := range uint32(12) {
		filed(&st, owner+10, fmt.Sprintf("%02d", owner), maxStoredBytes/2)
	}
	left := 0
	for owner := range uint32(12) {
		left += len(held(t, &st, owner+10))
	}
	if ids := held(t, &st, 1); len(ids) != 0 || left != maxAllBytes/(maxStoredBytes/2+1000) {
		t.Errorf("the owner with most still has %q; %d others are held", ids, left)
	}
	if st.get(10, "11") != nil || st.get(21, "11") == nil || !st.remove(21, "11") || st.remove(21, "11") ||
		st.owners[21] != nil {
		t.Error("a response is another owner's, or it is not removed once")
	}
	held(t, &st, 1)
}

// TestCancelResponse: a response that runs is ended by its id, by its owner alone.
func TestCancelResponse(t *testing.T) {
	b := &apitest.Backend{Hold: make(chan struct{}), Answer: func(*wire.Request) []wire.Event {
		return []wire.Event{apitest.Text("a"), apitest.EOS(wire.Stop)}
	}}
	url := apitest.Serve(t, b, Routes)
	ended := make(chan string)
	go func() {
		_, _, body := apitest.Do(t, "POST", url+"/v1/responses", `{"input":"x","stream":true}`, 0)
		ended <- body
	}()
	waitfor.True(t, "the request comes", func() bool { return len(b.Requests()) > 0 })
	id := b.Requests()[0].ID
	if status, _, body := apitest.Do(t, "POST", url+"/v1/responses/"+id+"/cancel", "", 0); status != 200 ||
		!strings.Contains(body, `"status":"cancelled"`) {
		t.Errorf("%d %s", status, body)
	}
	close(b.Hold)
	body := waitfor.Recv(t, "the end of the stream", ended)
	events := apitest.Events(t, body)
	if last := events[len(events)-1]; last.Name != "response.completed" ||
		!strings.Contains(last.Data, `"status":"cancelled"`) {
		t.Errorf("%+v", last)
	}
}

// TestItemsOfPages: input_items in both orders, by pages.
func TestItemsOfPages(t *testing.T) {
	b := &apitest.Backend{Answer: func(*wire.Request) []wire.Event {
		return []wire.Event{apitest.Text("a"),
			apitest.EOS(wire.Stop)}
	}}
	url := apitest.Serve(t, b, Routes)
	_, _, body := apitest.Do(t, "POST", url+"/v1/responses",
		`{"input":[{"id":"i1","role":"user","content":"a"},{"id":"i2","role":"user","content":"b"},{"id":"i3",`+
			`"role":"user","content":"c"}]}`, 0)
	var r struct{ ID string }
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		"": "i3 i2 i1 false", "?order=asc": "i1 i2 i3 false", "?order=asc&limit=2": "i1 i2 true",
		"?order=asc&limit=2&after=i2": "i3 false", "?after=i1": "false",
	} {
		_, _, body := apitest.Do(t, "GET", url+"/v1/responses/"+r.ID+"/input_items"+query, "", 0)
		var list struct {
			Data    []struct{ ID string }
			HasMore bool `json:"has_more"`
		}
		if err := json.Unmarshal([]byte(body), &list); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		got := ""
		for _, item := range list.Data {
			got += item.ID + " "
		}
		if got += fmt.Sprint(list.HasMore); got != want {
			t.Errorf("%q: %s, want %s", query, got, want)
		}
	}
	for _, query := range []string{"?limit=0", "?limit=x", "?order=up"} {
		if status, _, body := apitest.Do(t, "GET", url+"/v1/responses/"+r.ID+"/input_items"+query, "",
			0); status != 400 {
			t.Errorf("%s: %d %s", query, status, body)
		}
	}
}

// TestEncryptedThought: what goes out as encrypted comes back as thinking, and another server's is left out.
func TestEncryptedThought(t *testing.T) {
	for _, c := range []struct{ encrypted, want string }{{encrypt("hm é"), "hm é"}, {"gAAAAB", ""},
		{encryptedPrefix + "!", "error"}} {
		conv := conversation{tools: map[string]toolName{}}
		err := conv.add(api.AppendJSON(nil, map[string]any{"type": "reasoning", "summary": []any{},
			"encrypted_content": c.encrypted}))
		got := ""
		if err != nil {
			got = "error"
		} else if len(conv.messages) > 0 {
			got = conv.messages[0].Reasoning
		}
		if got != c.want {
			t.Errorf("%s: %q, %v", c.encrypted, got, err)
		}
	}
}

// TestReferencesAreBounded: what a body refers to counts each time.
func TestReferencesAreBounded(t *testing.T) {
	b := &apitest.Backend{Answer: func(*wire.Request) []wire.Event {
		return []wire.Event{apitest.Text("a"),
			apitest.EOS(wire.Stop)}
	}}
	url := apitest.Serve(t, b, Routes)
	apitest.Do(t, "POST", url+"/v1/responses", `{"input":[{"id":"i1","role":"user","content":"`+
		strings.Repeat("x", 1<<20)+`"}]}`, 0)
	refer := strings.Repeat(`{"type":"item_reference","id":"i1"},`, 16)
	status, _, body := apitest.Do(t, "POST", url+"/v1/responses", `{"input":[`+strings.TrimSuffix(refer, ",")+`]}`, 0)
	if status != 413 || !strings.Contains(body, "referenced items included") {
		t.Errorf("%d %.300s", status, body)
	}
}
