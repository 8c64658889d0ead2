export async function openZoo(root) { root.append("zoo"); }
