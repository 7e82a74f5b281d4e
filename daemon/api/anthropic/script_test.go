package anthropic_test

import (
	"testing"

	"github.com/uma-serve/uma-serve/daemon/api/anthropic"
	"github.com/uma-serve/uma-serve/daemon/api/apitest"
)

func TestScripts(t *testing.T) { apitest.RunScripts(t, anthropic.Routes) }
