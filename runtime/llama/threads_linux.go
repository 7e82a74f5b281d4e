package llama

func physicalCores() int { return linuxCores("/sys/devices/system/cpu") }
