package llamaserver_test

import (
	"strings"
	"testing"

	"github.com/uma-serve/uma-serve/daemon/api/apitest"
	"github.com/uma-serve/uma-serve/daemon/api/llamaserver"
)

// TestTemplateWithoutASecondBOS: a prompt of /apply-template that is tokenized with add_special has one BOS.
func TestTemplateWithoutASecondBOS(t *testing.T) {
	url := apitest.Serve(t, &apitest.Backend{AddsBOS: true}, llamaserver.Routes)
	const messages = `{"messages":[{"role":"user","content":"x"}]}`
	_, _, body := apitest.Do(t, "POST", url+"/apply-template", messages, 0)
	if strings.TrimSpace(body) != `{"prompt":"user:x\n"}` {
		t.Errorf("the prompt: %s", body)
	}
	// Counted it is.
	_, _, body = apitest.Do(t, "POST", url+"/v1/chat/completions/input_tokens", messages, 0)
	if strings.TrimSpace(body) != `{"object":"response.input_tokens","input_tokens":10}` {
		t.Errorf("the count: %s", body)
	}
}
