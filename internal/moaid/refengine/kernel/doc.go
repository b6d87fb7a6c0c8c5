// Package kernel is the arithmetic of the reference engine: matrix products,
// normalisation, rotary positions, attention over gathered keys and values, all
// in float32 with a fixed order.
//
// Every output element is one sum, built strictly from its first term to its
// last, whatever else is computed beside it. So how rows are batched, tiled or
// spread over cores cannot change a bit. Products are converted explicitly before
// they are added, because the language lets a compiler fuse a*b+c otherwise, and
// could do so in one loop and not in another.
package kernel
