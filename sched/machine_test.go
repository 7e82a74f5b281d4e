package sched

import "github.com/uma-serve/uma-serve/sched/cost/costtest"

type machine = costtest.Machine

var priceMachine, mixed = costtest.New, costtest.Mixed
