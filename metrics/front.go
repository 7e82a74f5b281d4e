package metrics

import "slices"

// OfConnections returns the keys of the JSON about connections: a front counts them for all of its engine processes.
func (m *Metrics) OfConnections() (keys []string) {
	for _, d := range m.decls {
		if d.where == atPoller || d.where == atDoor {
			keys = append(keys, d.json)
		}
	}
	return keys
}

// OfFront returns the keys of the JSON that a front has values for: it has no model.
func (m *Metrics) OfFront() []string {
	return slices.Concat(m.OfConnections(), []string{"requests_rejected_total", "log_lines_total", "log_dropped_total",
		"log_suppressed_total", "go_heap_bytes", "rss_bytes", "uptime_ms", "build"}, kvEventKeys)
}

// FrontMetric is a metric of a front: about its models, beside those of its engine processes.
type FrontMetric struct {
	Name    string
	Help    string
	Counter bool
}

// Names of Front.
const (
	FrontMemoryLimit = "uma_front_memory_limit_bytes"
	FrontMemoryUsed  = "uma_front_memory_used_bytes"
	FrontLoaded      = "uma_front_model_loaded"

	FrontDeviceTotal = "uma_front_device_total_bytes"
	FrontDeviceLimit = "uma_front_device_limit_bytes"
	FrontDeviceFree  = "uma_front_device_free_bytes"
	FrontDeviceModel = "uma_front_device_model_bytes"

	FrontWaiting     = "uma_front_model_waiting_connections"
	FrontConnections = "uma_front_model_connections"
	FrontModelMemory = "uma_front_model_memory_bytes"
	FrontModelHost   = "uma_front_model_host_tier_bytes"
	FrontHostBudget  = "uma_front_host_tier_budget_bytes"
	FrontLoads       = "uma_front_model_loads_total"
	FrontUnloads     = "uma_front_model_unloads_total"
	FrontCrashes     = "uma_front_model_crashes_total"
	FrontDenied      = "uma_front_model_denied_total"

	FrontDownloads      = "uma_front_downloads_total"
	FrontDownloadsRun   = "uma_front_downloads_running"
	FrontDownloadsBytes = "uma_front_downloaded_bytes_total"

	FrontMCPCalls    = "uma_front_mcp_calls_total"
	FrontMCPSeconds  = "uma_front_mcp_call_seconds_total"
	FrontMCPSent     = "uma_front_mcp_sent_bytes_total"
	FrontMCPReceived = "uma_front_mcp_received_bytes_total"
	FrontMCPRefused  = "uma_front_mcp_refused_total"
	FrontMCPLists    = "uma_front_mcp_lists_total"
	FrontMCPInside   = "uma_front_mcp_questions"
	FrontMCPStarts   = "uma_front_mcp_starts_total"
	FrontMCPRunning  = "uma_front_mcp_running"
)

// Front are the metrics of a front. Those of a model have the label model, those of an MCP server the label server,
// those of a device the label device.
var Front = []FrontMetric{
	{FrontMemoryLimit, "Memory that all loaded models together may take (--memory).", false},
	{FrontMemoryUsed, "Memory counted for the models that are loaded or being loaded, with their host tiers.", false},
	{FrontHostBudget, "Memory that the evicted prefixes of all models may take together at the moment.", false},
	{FrontDeviceTotal, "Memory of a discrete device, as its driver tells.", false},
	{FrontDeviceLimit, "Memory of the device that models together may take: 95% of what was free at the start.", false},
	{FrontDeviceFree, "Memory of the device that models may take, and none has.", false},
	{FrontDeviceModel, "Memory of the device that a model takes which is loaded or being loaded: weights, KV cells, " +
		"buffers, projector, draft model, and the driver's for its process.", false},
	{FrontLoaded, "1 while the model's engine process answers.", false},
	{FrontWaiting, "Connections whose request waits until the model is loaded.", false},
	{FrontConnections, "Connections that the model's engine process has.", false},
	{FrontModelMemory, "Memory that the model takes when it is loaded: weights, KV cells, buffers, host tier.", false},
	{FrontModelHost, "Memory that the model's evicted prefixes take, as part of the former.", false},
	{FrontLoads, "Engine processes started for the model.", true},
	{FrontUnloads, "Engine processes of the model that ended in order.", true},
	{FrontCrashes, "Engine processes of the model that ended by themselves.", true},
	{FrontDownloads, "Downloads of models that have ended, by result: finished, failed or canceled.", true},
	{FrontDownloadsRun, "Downloads of models that run or wait.", false},
	{FrontDownloadsBytes, "Bytes of the models whose downloads have finished.", true},
	{FrontDenied, "System calls that the sandbox refused the model's engine processes.", true},
	{FrontMCPCalls, "Calls of the MCP server's tools, by result: ok; failed, as the tool says; error, of the server " +
		"or its process; timeout; canceled, the client has left.", true},
	{FrontMCPSeconds, "Time of these calls, from question to answer: with the wait for one of 4 places and for the " +
		"start of the server.", true},
	{FrontMCPSent, "Bytes of these calls' arguments.", true},
	{FrontMCPReceived, "Bytes of these calls' results, as the client and the model get them.", true},
	{FrontMCPRefused, "Calls and requests that did not reach the MCP server, by reason: user, who may not use it; " +
		"approval, the client refused it; tool, there is none of the name, or it has changed; arguments; limit, of " +
		"the response.", true},
	{FrontMCPLists, "Questions for the MCP server's tools, by result.", true},
	{FrontMCPInside, "Calls and questions for tools that run or wait.", false},
	{FrontMCPStarts, "Times that the MCP server was started, or connected to at its url.", true},
	{FrontMCPRunning, "1 while the MCP server's bridge process runs.", false},
}
