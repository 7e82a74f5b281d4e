package gemini_test

import (
	"testing"

	"github.com/uma-serve/uma-serve/daemon/api/apitest"
	"github.com/uma-serve/uma-serve/daemon/api/gemini"
)

func TestScripts(t *testing.T) { apitest.RunScripts(t, gemini.Routes) }
