// Package explore asks the simulator many questions at once: a parameter over a range and where the server saturates
// ([Sweep], [Saturation]), policies side by side ([Compare]), and which configuration serves a workload within a target
// ([Plan]). Simulations run in parallel, one to a core; results are in the order of the questions, so the output does
// not depend on the machine.
package explore
