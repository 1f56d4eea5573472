use forebay_engine::MemoryEngine;

use crate::contract::contract;

#[test]
fn the_memory_engine_keeps_the_contract() {
    contract(&MemoryEngine::default());
}
