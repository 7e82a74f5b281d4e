package ollama_test

import (
	"testing"

	"github.com/uma-serve/uma-serve/daemon/api/apitest"
	"github.com/uma-serve/uma-serve/daemon/api/ollama"
)

func TestScripts(t *testing.T) { apitest.RunScripts(t, ollama.Routes) }
