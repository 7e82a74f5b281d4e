// Package soak decides what a soak test asks of a server and whether the server passed. It has the mixture of a day,
// the series that are sampled during it, the rules by which they are judged, and the virtual run: the mixture on the
// core in virtual time. Package bench runs the same mixture on daemon processes.
package soak
