package control_test

import (
	"testing"

	"github.com/uma-serve/uma-serve/daemon/api/apitest"
	"github.com/uma-serve/uma-serve/daemon/api/control"
)

func TestScripts(t *testing.T) { apitest.RunScripts(t, control.Routes) }
