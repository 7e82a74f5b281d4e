// Package opening has what must be known and done before requests are answered: a configuration and a file in, options
// of the engine and of the core out. It opens no engine, and knows no loop and no connection.
//
//	options.go   the options as the configurations of the scheduler, the core and the engine
//	policy.go    the files and the network that a confined engine process may use
//	devices.go   a device that the sandbox hides, layers that are not on one; the devices of an info report
//	process.go   settings of the process: the kernel's choice of a victim, core files, the runtime's monitor
//	progress.go  the progress of a load; what the log says of the model's limits
//	watchdog.go  systemd's watchdog; telemetry.go traces, metrics and KV events
package opening
