package openai_test

import (
	"testing"

	"github.com/uma-serve/uma-serve/daemon/api/apitest"
	"github.com/uma-serve/uma-serve/daemon/api/openai"
)

func TestScripts(t *testing.T) { apitest.RunScripts(t, openai.Routes) }
