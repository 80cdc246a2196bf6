// Where a wave goes on: branches, barriers, calls, the end; and what has no effect here.
#include <chrono>

#include "arithmetic.h"

namespace gfx9 {
namespace {

// By the number of the instruction at that place of the image.
void go_to(Wave& wave, uint64_t place) {
    const auto& at = wave.group->program->at;
    if (place % 4 != 0 || place / 4 >= at.size() || at[place / 4] == ~0u)
        throw Stop{Fault::Illegal, "jumps to where no instruction begins", -1};
    wave.pc = at[place / 4];
}

// Distances count words, from the end of the instruction.
void branch(Wave& wave, const Instruction& is) {
    const auto words = int16_t(is.op[0].bits);
    go_to(wave, is.place + is.nbytes + int64_t(words) * 4);
}

template <class Holds>
void add_branch(Table& table, const char* name, Holds) {
    table.special(name, [](Wave& wave, const Instruction& is) {
        if (Holds{}(wave)) branch(wave, is);
    });
}

uint64_t address_behind(const Wave& wave, const Instruction& is) {
    return wave.group->image + is.place + is.nbytes;
}

// Only the registers that compilers ask for: where shared and private memory are in the generic
// address space. `hwreg(NAME, START, WIDTH)` comes as one operand's text.
void get_register(Wave& wave, const Instruction& is) {
    if (is.text.find("HW_REG_SH_MEM_BASES, 16, 16") != std::string::npos)
        wave.s[is.op[0].index] = SHARED_APERTURE >> 16;
    else if (is.text.find("HW_REG_SH_MEM_BASES, 0, 16") != std::string::npos)
        wave.s[is.op[0].index] = PRIVATE_APERTURE >> 16;
    else
        throw Stop{Fault::Illegal, "reads a register that the engine does not have", -1};
}

// Which operands are moved stands in the text: gpr_idx(SRC0,DST).
void start_moving(Wave& wave, const Instruction& is) {
    const char* names[] = {"SRC0", "SRC1", "SRC2", "DST"};
    wave.moved = 0;
    for (int bit = 0; bit < 4; ++bit)
        if (is.text.find(names[bit]) != std::string::npos) wave.moved |= 1u << bit;
    wave.moved_by = scalar_of(wave, is.op[0]) & 255;
}

void read_clock(Wave& wave, const Instruction& is) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    wave.set_pair(is.op[0].index, uint64_t(now.count()));
}

}  // namespace

void add_control_rows(Table& table) {
    add_branch(table, "s_branch", [](Wave&) { return true; });
    add_branch(table, "s_cbranch_scc0", [](Wave& wave) { return !wave.scc; });
    add_branch(table, "s_cbranch_scc1", [](Wave& wave) { return wave.scc; });
    add_branch(table, "s_cbranch_vccz", [](Wave& wave) { return wave.pair(VCC) == 0; });
    add_branch(table, "s_cbranch_vccnz", [](Wave& wave) { return wave.pair(VCC) != 0; });
    add_branch(table, "s_cbranch_execz", [](Wave& wave) { return wave.exec() == 0; });
    add_branch(table, "s_cbranch_execnz", [](Wave& wave) { return wave.exec() != 0; });
    table.special("s_getpc_b64", [](Wave& wave, const Instruction& is) {
        wave.set_pair(is.op[0].index, address_behind(wave, is));
    });
    table.special("s_setpc_b64", [](Wave& wave, const Instruction& is) {
        go_to(wave, wave.pair(is.op[0].index) - wave.group->image);
    });
    table.special("s_swappc_b64", [](Wave& wave, const Instruction& is) {
        const uint64_t target = wave.pair(is.op[1].index);
        wave.set_pair(is.op[0].index, address_behind(wave, is));
        go_to(wave, target - wave.group->image);
    });
    table.special("s_endpgm", [](Wave& wave, const Instruction&) { wave.state = State::Ended; });
    table.special("s_barrier", [](Wave& wave, const Instruction&) { wave.state = State::AtBarrier; });
    table.special("s_trap", [](Wave&, const Instruction&) { throw Stop{Fault::Trap, "a trap", -1}; });
    table.special("s_getreg_b32", get_register);
    table.special("s_set_gpr_idx_on", start_moving);
    table.special("s_set_gpr_idx_off", [](Wave& wave, const Instruction&) { wave.moved = 0; });
    table.special("s_memtime", read_clock);
    table.special("s_memrealtime", read_clock);
    // All memory is seen in order here, and nothing is cached or takes time.
    for (const char* name :
         {"s_nop", "s_waitcnt", "s_sleep", "s_setprio", "s_icache_inv", "s_dcache_inv",
          "s_dcache_wb", "s_dcache_inv_vol", "s_dcache_wb_vol", "s_inst_prefetch", "v_nop",
          "buffer_wbinvl1", "buffer_wbinvl1_vol", "s_ttracedata", "s_code_end"})
        table.special(name, [](Wave&, const Instruction&) {});
}

}  // namespace gfx9
