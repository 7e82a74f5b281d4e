package runtime

// HostExperts returns how many of the layers that are on devices have their experts in the host's memory. A model has
// layers and an output; the last on of those are on devices. The experts of the first moe layers stay (Options.CPUMoE).
func HostExperts(layers, on, moe int) int {
	first := max(layers+1-on, 0)
	if moe < 0 || moe > layers {
		moe = layers
	}
	return max(moe-first, 0)
}
