package metrics

import "sync/atomic"

// Images counts what a reader of images and sounds has done.
type Images struct {
	Encoded, Heard uint64
	Cached, Loaded uint64 // from memory and from disk
	Seconds        float64
	CacheBytes     int64
}

// bound has sources of counts.
type bound struct {
	turns  atomic.Pointer[func() Turns]
	images atomic.Pointer[func() Images]
}

// BindImages sets the source of the counts of images, which must be safe from any goroutine.
func (m *Metrics) BindImages(f func() Images) { m.images.Store(&f) }

func (m *Metrics) imagesNow() Images {
	if f := m.images.Load(); f != nil {
		return (*f)()
	}
	return Images{}
}

// declareImages declares the metrics of images and sounds, 0 for a model that reads neither.
func (m *Metrics) declareImages(scrape string) {
	count := func(name, unit, help string, of func(*Images) uint64) {
		m.total(name, "uma_"+name, unit, help, scrape, func() float64 {
			now := m.imagesNow()
			return float64(of(&now))
		})
	}
	count("images_encoded_total", "parts", "Parts of images (a tile, or the whole image) that the projector "+
		"has encoded",
		func(i *Images) uint64 { return i.Encoded })
	count("sounds_encoded_total", "parts", "Parts of sounds (half a minute, or what the model takes at once) that the "+
		"projector has encoded", func(i *Images) uint64 { return i.Heard })
	m.vector("image_cache_hits_total", "uma_image_cache_hits_total", "tier", counter, "images", "Images and sounds "+
		"that were not encoded, by where their embeddings were: in memory (host) or on disk", scrape,
		tierNames[Host:Fabric], func(i int) float64 {
			now := m.imagesNow()
			return float64([...]uint64{now.Cached, now.Loaded}[i])
		})
	m.total("image_encode_ms_total", "uma_image_encode_seconds_total", "ms", "Time in which images and sounds were "+
		"decoded and encoded, beside the steps", scrape,
		func() float64 { return float64(int64(m.imagesNow().Seconds * 1000)) }).scale = 1e-3
	m.value("image_cache_bytes", "uma_image_cache_bytes", "bytes", "Embeddings of images and sounds that are kept "+
		"in memory or are being stored, at most 512 MiB; those of running and queued requests stay longer", scrape,
		func() float64 { return float64(m.imagesNow().CacheBytes) }).whole = true
}
