package front

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/daemon/config"
	"github.com/uma-serve/uma-serve/daemon/toolbox/setup"
)

// fakeBridge is a bridge to a server with one tool, add, whose result is 3.
func fakeBridge() {
	in := bufio.NewScanner(os.Stdin)
	in.Scan() // its description
	fmt.Println(`{"ID":0}`)
	for in.Scan() {
		var q setup.Question
		if json.Unmarshal(in.Bytes(), &q) != nil {
			return
		}
		a := setup.Answer{ID: q.ID, Tools: []setup.Tool{{Name: "add", Schema: json.RawMessage(`{"type":"object"}`)}}}
		if q.Kind == setup.Call {
			a = setup.Answer{ID: q.ID, Result: &setup.Result{Text: "3"}}
		}
		line, _ := json.Marshal(a)
		fmt.Println(string(line))
	}
}

// TestTools: a request with the tools of an MCP server is answered by the front, its turns by the model's process, on
// connections that either of them had before.
func TestTools(t *testing.T) {
	r := start(t, Options{}, []string{"m"}, func(c *config.Config) {
		c.MCP = []setup.Server{{Name: "s", Command: []string{"x"}, Timeout: time.Minute, Memory: setup.DefaultMemory}}
	}, "--max-tokens", "64")
	c := over(t, r.cfg.Socket)
	post := func(body string) (status int, text string) {
		t.Helper()
		resp, err := c.Post("http://uma/v1/responses", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	const tools = `"tools":[{"type":"mcp","server_label":"s","require_approval":"never"}]`
	for i := range 2 { // the model's process has the connection, then the front
		if status, text := post(`{"model":"m","input":"whoami"}`); status != 200 || !strings.Contains(text, "I am m") {
			t.Fatalf("round %d: %d %.500s", i, status, text)
		}
		status, text := post(`{"model":"m","input":"add it",` + tools + `}`)
		for _, want := range []string{`"mcp_list_tools"`, `"mcp_call"`, `"output":"3"`, `"status":"completed"`} {
			if status != 200 || !strings.Contains(text, want) {
				t.Fatalf("round %d: %d %.1500s\nlacks %s", i, status, text, want)
			}
		}
		var first struct{ ID string }
		if err := json.Unmarshal([]byte(text), &first); err != nil {
			t.Fatal(err)
		}
		if status, text = post(fmt.Sprintf(`{"model":"m","previous_response_id":%q,"input":"whoami"}`,
			first.ID)); status != 200 || !strings.Contains(text, "I am m") {
			t.Errorf("round %d: the next response: %d %.500s", i, status, text)
		}
		resp, err := c.Get("http://uma/v1/responses/" + first.ID)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK || !strings.Contains(string(b), "mcp_call") {
			t.Errorf("the stored response: %s %.300s", resp.Status, b)
		}
		for _, method := range []string{http.MethodDelete, http.MethodGet} { // its turns are gone with it
			req, err := http.NewRequest(method, "http://uma/v1/responses/"+first.ID, nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp, err = c.Do(req); err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if (resp.StatusCode == http.StatusOK) != (method == http.MethodDelete) {
				t.Errorf("%s: %s", method, resp.Status)
			}
		}
	}
	if status, text := post(`{"model":"m","input":"add it","stream":true,` + tools + `}`); status != 200 ||
		!strings.Contains(text, "event: response.mcp_call.completed") ||
		!strings.Contains(text, `"type":"response.completed"`) &&
			!strings.Contains(text, `"type":"response.incomplete"`) {
		t.Errorf("the stream: %d %.2000s", status, text)
	}
	if status, text := post(`{"model":"no-such-model","input":"x",` + tools + `}`); status == 200 ||
		!strings.Contains(text, "no-such-model") {
		t.Errorf("another model: %d %s", status, text)
	}
	if got := getBody(t, c, "/mcp/servers"); got != `{"servers":[{"name":"s"}]}`+"\n" {
		t.Errorf("the servers of this user: %s", got)
	}
	if status, text := post(`{"model":"m","input":"x","tools":[{"type":"mcp","server_label":"other"}]}`); status !=
		400 || !strings.Contains(text, "[mcp.NAME]") {
		t.Errorf("another server: %d %s", status, text)
	}
	resp, err := c.Get("http://uma/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`uma_front_mcp_calls_total{server="s",result="ok"} 3`, `uma_front_mcp_calls_total{server="s",result="error"} 0`,
		`uma_front_mcp_received_bytes_total{server="s"} 3`, `uma_front_mcp_starts_total{server="s"} 1`,
		`uma_front_mcp_questions{server="s"} 0`, `uma_front_mcp_running{server="s"} 1`,
		`uma_front_mcp_refused_total{server="s",reason="user"} 0`,
	} {
		if !strings.Contains(string(text), want+"\n") {
			t.Errorf("the scrape lacks %s", want)
		}
	}
}
