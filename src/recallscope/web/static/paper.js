export async function openPaper(root) { root.append("paper"); }
