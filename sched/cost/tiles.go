package cost

// Matrix kernels compute rows in tiles. Measured on ggml's repacked Q4_K (1.1 B parameters, 2 threads, AVX-512), ms per
// token of a step: 16 rows 10.7, 32 rows 10.7, 512 rows 10.4; but 24 rows 12.0, 13 rows 14.4, 8 rows 14.6, 4 rows 17.4.
// So a step of 16 rows is as good as one of 512, and one of 13 costs more than one of 16.
const (
	tileRows     = 16
	halfTileRows = 4 // rows beyond the last whole tile are computed by so many
)

// WholeTiles is the largest chunk of least … n tokens with which a batch of rows rows ends with a whole tile, or n if
// there is none.
func WholeTiles(rows, least, n int) int {
	whole := n
	switch all := rows + n; {
	case all >= tileRows:
		whole -= all % tileRows
	case all > halfTileRows:
		whole -= all % halfTileRows
	}
	if whole < least {
		return n
	}
	return whole
}
