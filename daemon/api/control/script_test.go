package own_test

import (
	"testing"

	"github.com/uma-serve/uma-serve/daemon/api/apitest"
	"github.com/uma-serve/uma-serve/daemon/api/own"
)

func TestScripts(t *testing.T) { apitest.RunScripts(t, own.Routes) }
