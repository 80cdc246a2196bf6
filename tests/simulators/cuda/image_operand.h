// The operand [object, {x, y}] of instructions that use images.
#pragma once

#include "decoder.h"
#include "machine.h"

namespace ptx {

// .1d .2d .3d: how many coordinates count, into the two lowest bits of `out.mode`.
bool axes_word(Decoder& d);

// Takes the operand: the object's slot into `out.a`, the coordinates' behind `slots`. Of three axes
// there are four coordinates, the last of which says nothing.
void object(Decoder& d, Type coordinate, std::vector<uint32_t>& slots);

// The image of the object. Raises a fault where there is none, or one of another kind.
const KernelImage& image_of(Thread& thread, const Instruction& i, bool surface);

}  // namespace ptx
