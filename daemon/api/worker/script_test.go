package worker_test

import (
	"testing"

	"github.com/uma-serve/uma-serve/daemon/api/apitest"
	"github.com/uma-serve/uma-serve/daemon/api/worker"
)

func TestScripts(t *testing.T) { apitest.RunScripts(t, worker.Routes) }
