package cpus

// priority returns the nice value of what the system call returns, which Linux shifts to 1 … 40.
func priority(n int) int { return 20 - n }
