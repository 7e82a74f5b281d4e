// Package kvsnap knows what the KV pool holds, so that nothing is computed twice.
package kvsnap
