package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/uma-serve/uma-serve/sim/blis/cluster"
)

func newCluster() *cobra.Command {
	in := inputs{server: serverFlags{mend: true}}
	var cfg cluster.Config
	c := &cobra.Command{
		Use:   "cluster",
		Short: "Simulate many servers behind a router, with or without prefill-decode disaggregation",
		Long: `Simulate many identical servers behind a router.

  uma-sim cluster --instances 8 --routing least-loaded --server server.json --set rate=150 --set num_requests=100000
  uma-sim cluster --instances 8 --prefill-instances 3 --kv-bytes-per-token 131072 --kv-transfer-gbs 25 \
    --server server.json

Memory use grows with the instances and their KV blocks, not with the requests. With --prefill-instances, a prefill
server computes the prompt, the KV cache is transferred (base + tokens × bytes / bandwidth), and one of the other
servers decodes the answer. That works with both batching algorithms (batch_formation).`,
	}
	in.register(c.Flags())
	fs := c.Flags()
	fs.IntVar(&cfg.Instances, "instances", 4, "number of servers")
	fs.StringVar(&cfg.Routing, "routing", cluster.Routings[0], "routing policy: "+strings.Join(cluster.Routings, ", "))
	fs.IntVar(&cfg.PrefillInstances, "prefill-instances", 0, "servers that only compute prompts; 0 = no disaggregation")
	fs.Float64Var(&cfg.KVBytesPerToken, "kv-bytes-per-token", 131072,
		"bytes of KV cache per prompt token (Llama-3.1-8B in 16 bit: 131072)")
	fs.Float64Var(&cfg.TransferGBs, "kv-transfer-gbs", 25, "bandwidth between servers in GB/s")
	fs.Int64Var(&cfg.TransferBaseUs, "kv-transfer-base-us", 100, "microseconds added to each transfer")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := in.load(c.ErrOrStderr()); err != nil {
			return err
		}
		var err error
		if cfg.Server, err = in.server.server(&in.work); err != nil {
			return err
		}
		src, err := in.work.source(cfg.Server.Seed)
		if err != nil {
			return err
		}
		began := time.Now()
		rep, runErr := cluster.Run(cfg, src)
		if rep == nil {
			return runErr
		}
		took := time.Since(began).Seconds()
		fmt.Fprintf(c.ErrOrStderr(), "simulated %d requests on %d instances in %.2f s of wall clock (%.0f "+
			"requests/s)\n",
			rep.Injected, cfg.Instances, took, float64(rep.Injected)/took)
		if rep.Stuck != nil && runErr == nil {
			fmt.Fprintf(c.ErrOrStderr(), "uma-sim: %v\n", rep.Stuck)
		}
		enc := json.NewEncoder(c.OutOrStdout())
		enc.SetIndent("", "  ")
		if err := enc.Encode(rep.Numbers(&cfg)); err != nil {
			return err
		}
		return runErr
	}
	return c
}
