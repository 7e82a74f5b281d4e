package llamaserver_test

import (
	"testing"

	"github.com/uma-serve/uma-serve/daemon/api/apitest"
	"github.com/uma-serve/uma-serve/daemon/api/llamaserver"
)

func TestScripts(t *testing.T) { apitest.RunScripts(t, llamaserver.Routes) }
