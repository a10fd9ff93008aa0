//! Strongly connected components of a graph, by Tarjan's algorithm (1972), without recursion.
//!
//! Nodes are known only by their numbers; what they mean is up to the caller.

use crate::lists::Lists;
use alloc::vec::Vec;

/// Strongly connected components of a graph of `count` nodes, every component after those that it
/// refers to.
///
/// Tarjan's algorithm ("Depth-first search and linear graph algorithms", 1972) without recursion.
pub(crate) fn components<I: Iterator<Item = u32>>(
    count: usize,
    targets: impl Fn(usize) -> I,
) -> Lists<u32> {
    const UNVISITED: u32 = u32::MAX;
    let mut index = alloc::vec![UNVISITED; count];
    let mut low = alloc::vec![0; count];
    let mut on_stack = alloc::vec![false; count];
    let mut stack: Vec<u32> = Vec::new();
    let mut next = 0;
    let mut components = Lists::new();
    // The path from the root to the current node, with the successors left to visit of each.
    let mut path: Vec<(u32, I)> = Vec::new();
    for root in 0..count as u32 {
        if index[root as usize] != UNVISITED {
            continue;
        }
        let mut enter = Some(root);
        loop {
            if let Some(node) = enter.take() {
                index[node as usize] = next;
                low[node as usize] = next;
                next += 1;
                stack.push(node);
                on_stack[node as usize] = true;
                path.push((node, targets(node as usize)));
            }
            let Some((node, rest)) = path.last_mut() else {
                break;
            };
            let node = *node;
            match rest.next() {
                Some(target) if index[target as usize] == UNVISITED => enter = Some(target),
                Some(target) => {
                    if on_stack[target as usize] {
                        low[node as usize] = low[node as usize].min(index[target as usize]);
                    }
                }
                None => {
                    path.pop();
                    if let Some((parent, _)) = path.last() {
                        low[*parent as usize] = low[*parent as usize].min(low[node as usize]);
                    }
                    if low[node as usize] == index[node as usize] {
                        let first = stack.iter().rposition(|&member| member == node);
                        let first =
                            first.expect("a node is on the stack until its component is found");
                        for &member in &stack[first..] {
                            on_stack[member as usize] = false;
                        }
                        components.push(stack.drain(first..).rev());
                    }
                }
            }
        }
    }
    components
}
